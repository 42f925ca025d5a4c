// The benchmarks on Pebble: one step in one process.
package main

import (
	"lithedb/bench-peers/internal/child"
	"lithedb/bench-peers/internal/pebblestore"
)

func main() {
	child.Main(pebblestore.Engine)
}

// The benchmarks on bbolt: one step in one process.
package main

import (
	"lithedb/bench-peers/internal/bboltstore"
	"lithedb/bench-peers/internal/child"
)

func main() {
	child.Main(bboltstore.Engine)
}

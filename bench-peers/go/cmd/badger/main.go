// The benchmarks on Badger: one step in one process.
package main

import (
	"lithedb/bench-peers/internal/badgerstore"
	"lithedb/bench-peers/internal/child"
)

func main() {
	child.Main(badgerstore.Engine)
}

// Package mapstore is a sorted map in memory as an engine under test: lets the workloads themselves
// be tested. Stores live in the engine, by directory, so that they survive closing. A fault says
// what the engine does wrong, so that tests can see the workloads notice.
package mapstore

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"sync"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

// Fault is what happens to a value on its way in; nil to lose the entry.
type Fault func(key, value []byte) []byte

// Forgetful loses one entry in eight.
func Forgetful(key, value []byte) []byte {
	if isStruck(key) {
		return nil
	}
	return value
}

// Garbling changes a middle byte of one value in eight; scan checksums do not see that.
func Garbling(key, value []byte) []byte {
	value = bytes.Clone(value)
	if isStruck(key) {
		value[len(value)/2] ^= 1
	}
	return value
}

func isStruck(key []byte) bool {
	return key[len(key)-1]%8 == 7
}

// New is an engine without stores; with a nil fault it is faithful.
func New(fault Fault) engine.Engine {
	var lock sync.Mutex
	stores := map[string]*store{}
	open := func(dir string, _ engine.Memory, _ engine.Commit) (engine.Store, error) {
		lock.Lock()
		defer lock.Unlock()
		// An empty directory says that the store is not an older one of that name.
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			stores[dir] = &store{fault: fault, values: map[string][]byte{}}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			return stores[dir], os.WriteFile(dir+"/map", make([]byte, 4096), 0o644)
		}
		return stores[dir], nil
	}
	return engine.Engine{Name: "map", BufferedSurvivesKill: true, Open: open}
}

type store struct {
	fault  Fault
	lock   sync.RWMutex
	values map[string][]byte
}

func (store *store) insert(key, value []byte) {
	if store.fault != nil {
		value = store.fault(key, value)
	}
	if value != nil {
		store.values[string(key)] = bytes.Clone(value)
	}
}

func (store *store) Put(key, value []byte, _ engine.Commit) error {
	store.lock.Lock()
	defer store.lock.Unlock()
	store.insert(key, value)
	return nil
}

func (store *store) PutBatch(records *data.Records, _ engine.Commit) error {
	store.lock.Lock()
	defer store.lock.Unlock()
	for number := range records.Len() {
		store.insert(records.At(number))
	}
	return nil
}

func (store *store) Delete(key []byte, _ engine.Commit) error {
	store.lock.Lock()
	defer store.lock.Unlock()
	delete(store.values, string(key))
	return nil
}

func (store *store) DeleteRange(_, _ []byte, _ engine.Commit) (string, error) {
	return "", nil
}

func (store *store) Get(key, out []byte) ([]byte, bool, error) {
	store.lock.RLock()
	defer store.lock.RUnlock()
	value, found := store.values[string(key)]
	return append(out, value...), found, nil
}

func (store *store) View() (engine.View, error) {
	store.lock.RLock()
	defer store.lock.RUnlock()
	values := maps.Clone(store.values)
	return &view{values, slices.Sorted(maps.Keys(values))}, nil
}

func (store *store) Sync() error                      { return nil }
func (store *store) Flush() (engine.Offered, error)   { return engine.No, nil }
func (store *store) Compact() (engine.Offered, error) { return engine.No, nil }
func (store *store) Figures() map[string]float64      { return nil }
func (store *store) Close() error                     { return nil }

type view struct {
	values map[string][]byte
	keys   []string
}

func (view *view) Get(key, out []byte) ([]byte, bool, error) {
	value, found := view.values[string(key)]
	return append(out, value...), found, nil
}

func (view *view) Scan(walk engine.Walk, visit func(key, value []byte)) (uint64, error) {
	keys := view.keys
	switch walk.Direction {
	case engine.Reverse:
		keys = slices.Clone(keys)
		slices.Reverse(keys)
	case engine.From:
		first, _ := slices.BinarySearch(keys, string(walk.Key))
		keys = keys[first:]
		keys = keys[:min(uint64(len(keys)), walk.Limit)]
	}
	for _, key := range keys {
		visit([]byte(key), view.values[key])
	}
	return uint64(len(keys)), nil
}

func (view *view) Sum(walk engine.Walk) (data.Seen, error) {
	var seen data.Seen
	_, err := view.Scan(walk, seen.Add)
	return seen, err
}

func (view *view) Close() error { return nil }

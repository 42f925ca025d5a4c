package data

// Records is a batch of entries, made before the clock starts. All bytes lie in one buffer, so that
// handing a batch to an engine costs what the engine makes of it.
type Records struct {
	bytes []byte
	// Where each key and each value ends.
	ends []entryEnd
}

type entryEnd struct{ key, value int }

// Refill replaces the content by entries indexOf(first) .. indexOf(end-1) in a version; it keeps
// the memory.
func (records *Records) Refill(
	shape KeyShape, first, end uint64, indexOf func(uint64) uint64, valueLen int, version uint64,
) {
	records.Clear()
	for number := first; number < end; number++ {
		index := indexOf(number)
		records.bytes = shape.Append(index, records.bytes)
		keyEnd := len(records.bytes)
		records.bytes = AppendValue(index, version, valueLen, records.bytes)
		records.ends = append(records.ends, entryEnd{keyEnd, len(records.bytes)})
	}
}

// Push appends one entry.
func (records *Records) Push(key, value []byte) {
	records.bytes = append(records.bytes, key...)
	keyEnd := len(records.bytes)
	records.bytes = append(records.bytes, value...)
	records.ends = append(records.ends, entryEnd{keyEnd, len(records.bytes)})
}

// Clear forgets all entries; it keeps the memory.
func (records *Records) Clear() {
	records.bytes, records.ends = records.bytes[:0], records.ends[:0]
}

// Len counts the entries.
func (records *Records) Len() int {
	return len(records.ends)
}

// Size is the bytes of keys and values.
func (records *Records) Size() int {
	return len(records.bytes)
}

// At is key and value of an entry, in the order in which they are written. Valid until the next
// change.
func (records *Records) At(number int) (key, value []byte) {
	start := 0
	if number > 0 {
		start = records.ends[number-1].value
	}
	end := records.ends[number]
	return records.bytes[start:end.key:end.key], records.bytes[end.key:end.value:end.value]
}

// Same is the index of operation number when entries are written in the order of their indexes.
func Same(number uint64) uint64 {
	return number
}

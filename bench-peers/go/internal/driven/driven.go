// Package driven is an engine that does what standard input says, a line at a time, and says on
// standard output what came of it (`bench-peers/PROTOCOL.md`), as the programs in Rust do
// (`bench-peers/peer/src/driven.rs`). It decides and judges nothing.
package driven

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

// lineMax is the longest line that is understood.
const lineMax = 1 << 20

var errNothingOpen = errors.New("nothing is open")

// Fill is the value of a seed: SplitMix64 (S. Vigna), little-endian.
func Fill(seed uint64, length int) []byte {
	bytes := make([]byte, 0, length+8)
	for len(bytes) < length {
		seed += 0x9E37_79B9_7F4A_7C15
		word := (seed ^ (seed >> 30)) * 0xBF58_476D_1CE4_E5B9
		word = (word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB
		bytes = binary.LittleEndian.AppendUint64(bytes, word^(word>>31))
	}
	return bytes[:length]
}

// Digest is FNV-1a of 64 bits: what is changed in one place has another one, always.
func Digest(bytes []byte) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write(bytes) // It never fails.
	return hash.Sum64()
}

// Run does what input says, until it ends, with a store in dir.
func Run(
	kind engine.Engine, dir string, memory engine.Memory, input io.Reader, output io.Writer,
) error {
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 0, 4096), lineMax)
	driven := driven{
		kind: kind, dir: dir, memory: memory, lines: lines, output: bufio.NewWriter(output),
	}
	for lines.Scan() {
		line := lines.Text()
		if err := driven.obey(line); err != nil {
			fmt.Fprintf(driven.output, "=error %s\n", oneLine(err))
		} else {
			fmt.Fprintln(driven.output, "=ok")
		}
		if err := driven.output.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

type driven struct {
	kind   engine.Engine
	dir    string
	memory engine.Memory
	store  engine.Store
	lines  *bufio.Scanner
	output *bufio.Writer
}

func (driven *driven) obey(line string) error {
	words := strings.Split(line, " ")
	if line == "open" {
		if err := os.MkdirAll(driven.dir, 0o755); err != nil {
			return err
		}
		store, err := driven.kind.Open(driven.dir, driven.memory, engine.Durable)
		if err == nil {
			driven.store = store
		}
		return err
	}
	if words[0] == "gets" && len(words) == 2 {
		return driven.gets(words[1])
	}
	if words[0] == "batch" && len(words) == 3 {
		return driven.batch(words[1], words[2])
	}
	if driven.store == nil {
		return errNothingOpen
	}
	switch {
	case words[0] == "put" && len(words) == 5:
		key, value, err := entry(words[1:4])
		if err != nil {
			return err
		}
		commit, err := commitOf(words[4])
		if err != nil {
			return err
		}
		return driven.store.Put(key, value, commit)
	case words[0] == "delete" && len(words) == 3:
		key, err := hex.DecodeString(words[1])
		if err != nil {
			return err
		}
		commit, err := commitOf(words[2])
		if err != nil {
			return err
		}
		return driven.store.Delete(key, commit)
	case line == "scan forward":
		return driven.scan(engine.Walk{Direction: engine.Forward})
	case line == "scan reverse":
		return driven.scan(engine.Walk{Direction: engine.Reverse})
	case line == "flush":
		_, err := driven.store.Flush()
		return err
	case line == "compact":
		_, err := driven.store.Compact()
		return err
	case line == "sync":
		return driven.store.Sync()
	case line == "close":
		store := driven.store
		driven.store = nil
		return store.Close()
	}
	return fmt.Errorf("%q is no command", line)
}

// next are so many lines that belong to a command.
func (driven *driven) next(count string) ([]string, error) {
	number, err := strconv.Atoi(count)
	if err != nil {
		return nil, err
	}
	var lines []string
	for range number {
		if !driven.lines.Scan() {
			return nil, errors.New("standard input ended within a command")
		}
		lines = append(lines, driven.lines.Text())
	}
	return lines, nil
}

func (driven *driven) batch(count, commitWord string) error {
	lines, err := driven.next(count)
	if err != nil {
		return err
	}
	if driven.store == nil {
		return errNothingOpen
	}
	commit, err := commitOf(commitWord)
	if err != nil {
		return err
	}
	var records data.Records
	for _, line := range lines {
		key, value, err := entry(strings.Split(line, " "))
		if err != nil {
			return err
		}
		records.Push(key, value)
	}
	return driven.store.PutBatch(&records, commit)
}

// gets reads keys, each by itself: that one cannot be read is told of it alone.
func (driven *driven) gets(count string) error {
	keys, err := driven.next(count)
	if err != nil {
		return err
	}
	if driven.store == nil {
		return errNothingOpen
	}
	var value []byte
	for _, text := range keys {
		key, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		var found bool
		value, found, err = driven.store.Get(key, value[:0])
		switch {
		case err != nil:
			fmt.Fprintf(driven.output, "=e %s\n", oneLine(err))
		case found:
			fmt.Fprintf(driven.output, "=v %d %016x\n", len(value), Digest(value))
		default:
			fmt.Fprintln(driven.output, "=n")
		}
	}
	return nil
}

// scan says all entries, as far as they can be read.
func (driven *driven) scan(walk engine.Walk) error {
	view, err := driven.store.View()
	if err != nil {
		return err
	}
	_, err = view.Scan(walk, func(key, value []byte) {
		fmt.Fprintf(driven.output, "=p %x %d %016x\n", key, len(value), Digest(value))
	})
	return errors.Join(err, view.Close())
}

func entry(words []string) (key, value []byte, err error) {
	if len(words) != 3 {
		return nil, nil, fmt.Errorf("%q is no entry", words)
	}
	key, err = hex.DecodeString(words[0])
	if err != nil {
		return nil, nil, err
	}
	seed, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return nil, nil, err
	}
	length, err := strconv.Atoi(words[2])
	if err != nil {
		return nil, nil, err
	}
	return key, Fill(seed, length), nil
}

func commitOf(word string) (engine.Commit, error) {
	switch word {
	case "durable":
		return engine.Durable, nil
	case "buffered":
		return engine.Buffered, nil
	}
	return engine.Buffered, fmt.Errorf("%q is no kind of commit", word)
}

func oneLine(err error) string {
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(err.Error())
}

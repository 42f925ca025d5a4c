package measure

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	kib = 1024
	// st_blocks counts in these, whatever the file system's own block is.
	statBlockSize = 512
	dropCaches    = "/proc/sys/vm/drop_caches"
)

// Process is figures of this process since it began. Where the system does not tell, a figure is
// absent (nil), never zero.
type Process struct {
	// StorageBytesWritten is what the process caused to be sent to storage (pages dirtied, also
	// through mmap).
	StorageBytesWritten *uint64
	// CallBytesWritten is what was handed to write and the like.
	CallBytesWritten *uint64
	// MemoryPeak is the most memory resident at once, in bytes.
	MemoryPeak *uint64
	// CPU is user and system time of all threads.
	CPU time.Duration
}

// ProcessNow is the figures now.
func ProcessNow() Process {
	io, _ := os.ReadFile("/proc/self/io")
	status, _ := os.ReadFile("/proc/self/status")
	process := Process{
		StorageBytesWritten: field(string(io), "write_bytes:"),
		CallBytesWritten:    field(string(io), "wchar:"),
		MemoryPeak:          field(string(status), "VmHWM:"),
		CPU:                 cpuTime(),
	}
	if process.MemoryPeak != nil {
		*process.MemoryPeak *= kib
	}
	return process
}

// Since is what was written and computed since earlier; the peak stays that of the whole time.
func (process Process) Since(earlier Process) Process {
	process.StorageBytesWritten = minus(process.StorageBytesWritten, earlier.StorageBytesWritten)
	process.CallBytesWritten = minus(process.CallBytesWritten, earlier.CallBytesWritten)
	process.CPU -= earlier.CPU
	return process
}

func minus(now, then *uint64) *uint64 {
	if now == nil || then == nil {
		return nil
	}
	difference := *now - min(*then, *now)
	return &difference
}

// field is the number after name at the start of a line.
func field(text, name string) *uint64 {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		words := strings.Fields(rest)
		if !found || len(words) == 0 {
			continue
		}
		if number, err := strconv.ParseUint(words[0], 10, 64); err == nil {
			return &number
		}
	}
	return nil
}

func cpuTime() time.Duration {
	var spent unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &spent) != nil {
		return 0
	}
	return time.Duration(spent.Nano())
}

// DirectorySize is the space of a directory and all below it.
type DirectorySize struct {
	// Apparent is the lengths of the files.
	Apparent uint64
	// Allocated is the blocks that the file system gave them, in bytes.
	Allocated uint64
	// Files counts them.
	Files uint64
}

// SizeOf walks a directory. Files that vanish meanwhile count as nothing.
func SizeOf(dir string) (DirectorySize, error) {
	var size DirectorySize
	err := forEachFile(dir, func(path string) {
		status, err := os.Stat(path)
		if err != nil {
			return
		}
		size.Apparent += uint64(status.Size())
		if stat, ok := status.Sys().(*syscall.Stat_t); ok {
			size.Allocated += uint64(stat.Blocks) * statBlockSize
		}
		size.Files++
	})
	return size, err
}

func forEachFile(dir string, visit func(path string)) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			visit(path)
		}
		return nil
	})
}

// Cold says how cold a cold read was.
type Cold string

const (
	// Dropped: the whole page cache was.
	Dropped Cold = "dropped"
	// Advised: the system was advised to forget the store's pages.
	Advised Cold = "advised"
	// NotDropped: nothing could be done; the figure is a warm one.
	NotDropped Cold = "not dropped"
)

// DropPageCache removes the files in dir from the page cache. The store must be closed.
func DropPageCache(dir string) Cold {
	unix.Sync() // Only clean pages can be dropped.
	// 1: the page cache alone. Inodes stay, as they would on a machine that runs other things.
	if writeExisting(dropCaches, "1") == nil {
		return Dropped
	}
	advised, refused := 0, 0
	err := forEachFile(dir, func(path string) {
		if forgetPages(path) == nil {
			advised++
		} else {
			refused++
		}
	})
	if err == nil && refused == 0 && advised > 0 {
		return Advised
	}
	return NotDropped
}

func writeExisting(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func forgetPages(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

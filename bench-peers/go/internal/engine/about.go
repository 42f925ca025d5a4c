package engine

import (
	"encoding/json"
	"runtime/debug"
)

// Safety is what survives what: decides in which tables an engine counts as a rival.
type Safety string

const (
	// SafetyKill: an acknowledged write without sync survives the end of the process, one with sync
	// the end of the machine.
	SafetyKill Safety = "kill"
	// SafetySync: a write without sync can be lost when the process is killed; what was synced is
	// not.
	SafetySync Safety = "sync"
)

// About is what a report says about an engine beside its figures.
type About struct {
	// Module whose version is that of the engine.
	Module string
	// Structure is what it is, in a few words: `B+-tree, copy on write`.
	Structure string
	// Why writes without sync can be lost, if they can.
	Why string
	// Settings that differ from its defaults, and why; one sentence each.
	Settings []string
}

// Describe is the object that `about` prints, the same as that of the programs in Rust.
func (engine Engine) Describe() ([]byte, error) {
	safety := SafetySync
	if engine.BufferedSurvivesKill {
		safety = SafetyKill
	}
	return json.Marshal(map[string]any{
		"engine": engine.Name, "language": "Go", "version": versionOf(engine.About.Module),
		"structure": engine.About.Structure, "safety": safety, "why": engine.About.Why,
		"settings": engine.About.Settings,
	})
}

// versionOf is the version that is built in; `?` if the module is not.
func versionOf(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, built := range info.Deps {
			if built.Path == module {
				return built.Version
			}
		}
	}
	return "?"
}

package engine

import "testing"

func TestMemoryIsReadWithItsUnit(t *testing.T) {
	for text, want := range map[string]string{
		"default": "default", "4096": "4096", "256MiB": "268435456", "1 GiB": "1073741824",
	} {
		memory, err := ParseMemory(text)
		if err != nil || memory.String() != want {
			t.Errorf("%q: %v, %v", text, memory, err)
		}
	}
	for _, text := range []string{"", "MiB", "12MB", "-1", "99999999999GiB"} {
		if memory, err := ParseMemory(text); err == nil {
			t.Errorf("%q: %v", text, memory)
		}
	}
	if again, err := ParseMemory(MemoryRule.String()); err != nil || again != MemoryRule {
		t.Errorf("the rule does not survive the command line: %v, %v", again, err)
	}
}

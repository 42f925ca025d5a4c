package driven

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/mapstore"
)

func TestValuesAndDigestsAreThoseOfTheOtherLanguages(t *testing.T) {
	if text := hex.EncodeToString(Fill(1, 11)); text != "c15c0289ec2d0a9167ec8e" {
		t.Error(text)
	}
	for _, sample := range []struct {
		bytes  []byte
		digest uint64
	}{
		{Fill(1, 11), 0x5679_F335_5EB3_219A},
		{nil, 0xCBF2_9CE4_8422_2325},
		{[]byte("foobar"), 0x8594_4171_F739_67E8},
		{Fill(7, 1000), 0xBAC5_B7F2_2DF6_68EB},
	} {
		if digest := Digest(sample.bytes); digest != sample.digest {
			t.Errorf("%x: %x", sample.bytes, digest)
		}
	}
}

func TestEachCommandHasOneLastLine(t *testing.T) {
	said := "flush\nopen\nput 6b 1 11 durable\nbatch 2 buffered\n61 7 1000\n62 1 0\n" +
		"delete 62 durable\ngets 2\n6b\n62\nscan forward\nscan reverse\nsync\nwhat\n" +
		"close\nclose\n"
	want := "=error nothing is open\n=ok\n=ok\n=ok\n=ok\n" +
		"=v 11 5679f3355eb3219a\n=n\n=ok\n" +
		"=p 61 1000 bac5b7f22df668eb\n=p 6b 11 5679f3355eb3219a\n=ok\n" +
		"=p 6b 11 5679f3355eb3219a\n=p 61 1000 bac5b7f22df668eb\n=ok\n" +
		"=ok\n=error \"what\" is no command\n=ok\n" +
		"=error nothing is open\n"
	var output bytes.Buffer
	err := Run(
		mapstore.New(nil), t.TempDir(), engine.MemoryRule, strings.NewReader(said), &output,
	)
	if err != nil {
		t.Fatal(err)
	}
	if output.String() != want {
		t.Errorf("%s", output.String())
	}
}

package connectivity

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestResultsComeBackFromALog(t *testing.T) {
	want := []Result{result(Pod, TCP, "a", "b"), result(Pod, MTU, "a", "b", carries(1400)), result(Outside, Dial, "a", "", failed(Silent), over6)}
	var trials []Trial
	for _, r := range want {
		trials = append(trials, r.Trial)
	}
	var log bytes.Buffer
	if err := WriteResults(&log, want); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(log.String(), "\n")
	noisy := "a program's own line\n" + lines[0] + "{}\n" + strings.Join(lines[1:], "")
	got, err := ReadResults([]byte(noisy), trials)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for name, cut := range map[string]string{
		"without its end":    strings.Join(lines[:2], ""),
		"without its middle": lines[0] + strings.Join(lines[2:], ""),
		"empty":              "",
		"a result twice":     lines[0] + lines[0] + strings.Join(lines[2:], ""),
	} {
		if _, err := ReadResults([]byte(cut), trials); !errors.Is(err, ErrCut) {
			t.Errorf("a log %s: %v", name, err)
		}
	}
	if got, err := ReadResults(log.Bytes(), trials[:2]); err != nil || len(got) != 2 {
		t.Errorf("with a result that nobody asked for: %+v, %v", got, err)
	}
	if _, err := ReadResults([]byte(mark+"{"), trials); err == nil {
		t.Error("a broken line is no error")
	}
}

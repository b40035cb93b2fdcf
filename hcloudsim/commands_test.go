package hcloudsim

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Times of a command that no action has are reported, so that a misspelled one is noticed.
func TestUnusedTimesAreTold(t *testing.T) {
	times := map[string][]time.Duration{"zonk": {1}, "add_route": {1}, "add_rout": {1}}
	if got, want := (Options{ActionTimes: times}).UnusedTimes(), []string{"add_rout", "zonk"}; !slices.Equal(got, want) {
		t.Errorf("unused are %v, want %v", got, want)
	}
}

// The list of commands contains those of the actions in the sources.
func TestCommandsAreThoseOfTheSources(t *testing.T) {
	begins := regexp.MustCompile(`(?:command: +|issuance\(\w+, |power\(|transition\(|publicInterface\()"([a-z_]+)"`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range begins.FindAllStringSubmatch(string(content), -1) {
			found = append(found, match[1])
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, commands()) {
		t.Errorf("commands are\n%v, and the sources have\n%v", commands(), found)
	}
}

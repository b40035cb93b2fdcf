package connectivity

import (
	"os"
	"strings"
	"testing"
)

// Every kind of finding has a remedy, and every check that it names is one of doctor's; otherwise
// doctor's finding would never be shown.
func TestAdvice(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []Path{Pod, Service, NodePort, HealthCheck, Outside} {
		for _, state := range []State{Slow, Lossy, Narrow, Closed} {
			for _, same := range []bool{true, false} {
				for _, by := range []Failure{"", Stranger, Status} {
					a := advice(class{path: path, state: state, same: same, by: by})
					if a.remedy == "" {
						t.Errorf("%s %s: no remedy", path, state)
					}
					for _, check := range a.checks {
						if !strings.Contains(string(page), "`"+check+"`") {
							t.Errorf("%s %s: doctor has no check %s", path, state, check)
						}
					}
				}
			}
		}
	}
}

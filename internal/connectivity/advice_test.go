package connectivity

import "testing"

// Every kind of finding has a remedy.
func TestRemedies(t *testing.T) {
	for _, path := range []Path{Pod, Service, NodePort, HealthCheck, Outside} {
		for _, state := range []State{Narrow, Closed} {
			for _, same := range []bool{true, false} {
				for _, by := range []Failure{"", Stranger, Status} {
					if remedy(class{path: path, state: state, same: same, by: by}) == "" {
						t.Errorf("%s %s %s: no remedy", path, state, by)
					}
				}
			}
		}
	}
}

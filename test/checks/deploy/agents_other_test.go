//go:build !linux

package deploy

import "testing"

func agentsWorkWithWhatTheyAreGiven(t *testing.T, _, _ string) {
	t.Skip("the agent works on Linux's routes")
}

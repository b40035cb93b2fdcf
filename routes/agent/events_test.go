package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An Event reports a problem of the machine, for users who can't reach it: when it begins, and when
// another one takes its place.
func TestReasonsOfUnreadinessAreReported(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		fail := func(err error) {
			w.after.mu.Lock()
			w.after.err = err
			w.after.mu.Unlock()
		}
		lastSent := func() (found []string) {
			for {
				select {
				case e := <-w.events.Events:
					if strings.Contains(e, reasonNotReady) {
						found = append(found, e)
					}
				default:
					return found
				}
			}
		}
		fail(errors.New("the CNI plugin ptp is not in /opt/cni/bin"))
		time.Sleep(30 * time.Minute)
		w.rest()
		if got := lastSent(); len(got) != 1 || !strings.Contains(got[0], "Warning NetworkNotReady") || !strings.Contains(got[0], "the CNI plugin ptp is not in") {
			t.Errorf("told: %q", got)
		}
		fail(errors.New("the disk is full"))
		time.Sleep(2 * time.Minute)
		w.rest()
		if got := lastSent(); len(got) != 1 || !strings.Contains(got[0], "the disk is full") {
			t.Errorf("something else is told: %q", got)
		}
		fail(nil)
		time.Sleep(30 * time.Minute)
		w.rest()
		if got := lastSent(); len(got) != 0 {
			t.Errorf("told when it was over: %q", got)
		}
	})
}

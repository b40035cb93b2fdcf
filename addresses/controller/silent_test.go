package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// A node joins before the packet filters of the others admit it: it reaches no node, all reach it,
// and its reports move no address.
func TestANodeThatReachesNoOthersMovesNoAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("b")
		w.start()
		w.service("one")
		w.service("two")
		w.settle()
		services := []string{"one", "two"}
		before := w.all(services)
		w.node("c")
		w.silences(addresses.ProxyPort, []string{"c"}, "a", "b")
		w.after(4 * time.Minute)
		if now := w.all(services); !slices.Equal(now, before) {
			t.Errorf("they are held by %v, were by %v", now, before)
		}
	})
}

// A failure is remembered for a minute after its last report.
func TestASilenceIsRemembered(t *testing.T) {
	began := time.Now()
	f := fleet{health: health{}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.members = append(f.members, member{name: name, ready: true, reports: true})
	}
	agreed := map[string]string{"b": "a", "c": "a"}
	for _, step := range []struct {
		at          time.Duration
		says        map[string]string
		silent, was bool
	}{
		{0, map[string]string{"b": "a"}, false, false},
		{time.Second, agreed, true, true},
		{2 * time.Second, agreed, true, true},
		{3 * time.Second, nil, false, true},
		{2*time.Second + silentFor - time.Millisecond, nil, false, true},
		{2*time.Second + silentFor, nil, false, false},
	} {
		f.now = began.Add(step.at)
		for i, m := range f.members {
			f.members[i].report.Silent = nil
			for _, node := range step.says[m.name] {
				f.members[i].report.Silent = append(f.members[i].report.Silent, addresses.Endpoint{
					Node: string(node), Port: addresses.ProxyPort,
				})
			}
		}
		f.health.learn(&f)
		_, was := f.health["a"].silentAt[addresses.ProxyPort]
		silent := slices.Contains(f.health["a"].silent, addresses.ProxyPort)
		if silent != step.silent || was != step.was {
			t.Errorf("after %v a is silent: %t, was: %t; want %t, %t", step.at, silent, was, step.silent, step.was)
		}
	}
	if left := f.health["a"].silentAt; len(left) > 0 {
		t.Errorf("remembered to the end: %v", left)
	}
}

// Conversely: if the connected nodes report first, the cut-off holder loses the address.
func TestTheOneThatIsCutOffHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		others := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == holder })
		w.silences(addresses.ProxyPort, []string{holder}, others...)
		w.silences(addresses.ProxyPort, others, holder)
		w.settle()
		if now := w.holder("one"); !slices.Contains(others, now) {
			t.Errorf("%s holds it", now)
		}
	})
}

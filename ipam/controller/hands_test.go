package controller

import (
	"maps"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// leaseStep edits the lease as users do: it deletes the lease, alone or together with the stored
// ledger, or restores an older copy of the ledger. The next leader finds a lease without an earlier
// leader.
func (s *schedule) leaseStep(roll int) {
	switch {
	case roll == 39 && s.saved == nil:
		if len(s.damaged) == 0 {
			s.saved = s.api.savedLedger()
		}
		return
	case roll == 39:
		s.note("an older copy of the ledger is put back, and the lease deleted")
		// No request in flight may depend on an entry that the copy lacks.
		s.stopAll()
		pass(lateness)
		s.api.restoreLedger(s.saved)
		s.saved = nil
		clear(s.damaged)
		// No Node that the copy lacks may be deleted, or hidden by an old cache, before the next
		// leader has read the Nodes and recorded them: no process could know that it had podCIDRs.
		s.api.resume()
		s.api.inject(nil)
		s.anew = true
		for range schedulePools {
			s.bury()
			pass(time.Second)
		}
		pass(2 * unhurried)
		s.api.inject(s.fault)
		return
	case s.rng.IntN(2) == 0 && s.api.anyOfOurs():
		s.note("the lease is deleted, and all that is stored")
		for _, p := range s.procs[:len(s.procs)-1] {
			p.stop()
		}
		s.leader().connection.die()
		for _, name := range s.api.shards() {
			s.api.deleteObject(name)
		}
		clear(s.damaged)
	default:
		s.note("the lease is deleted")
		s.leader().connection.freeze()
	}
	s.anew = true
	s.bury()
	if len(s.procs) < 3 && s.anew {
		s.start()
	}
}

// anyOfOurs reports whether a Node has podCIDRs that the controller set: without one, a process
// that finds neither lease nor ledger can't notice an earlier process.
func (f *fakeAPI) anyOfOurs() bool {
	for _, node := range f.live() {
		if podCIDRs, _ := kube.PodCIDRs(node); len(podCIDRs) > 0 && f.byUs[node.UID] {
			return true
		}
	}
	return false
}

// savedLedger returns a copy of the stored ledger, by the names of its ConfigMaps; nil: it is not
// complete.
func (f *fakeAPI) savedLedger() map[string]map[string]string {
	f.Lock()
	defer f.Unlock()
	if !f.ledger.whole() {
		return nil
	}
	saved := map[string]map[string]string{}
	for name := range f.ledger.objects {
		saved[name] = maps.Clone(f.ledger.data(name))
	}
	return saved
}

// restoreLedger restores such a copy. Releases since the copy, and the ends of their quarantines,
// are lost with the replaced ledger.
func (f *fakeAPI) restoreLedger(saved map[string]map[string]string) {
	f.Lock()
	defer f.Unlock()
	clear(f.ledger.objects)
	for name, data := range saved {
		f.ledger.replace(name, data)
	}
	f.invariants.ledgerLost()
	f.invariants.ledgerMade()
	f.invariants.excused = time.Time{}
	f.note("the ledger is restored")
}

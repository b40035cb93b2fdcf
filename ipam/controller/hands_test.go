package controller

import (
	"maps"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// leaseStep is what people do to the lease: they delete it, alone or together with all that is
// stored, or they put back a copy of what was stored before. Whoever leads next finds a lease that
// has never changed hands.
func (s *schedule) leaseStep(roll int) {
	switch {
	case roll == 39 && s.saved == nil:
		s.saved = s.api.savedLedger()
		return
	case roll == 39:
		s.note("an older copy of the ledger is put back, and the lease deleted")
		// Nothing that is on its way may rest on what the copy doesn't have.
		s.stopAll()
		pass(lateness)
		s.api.restoreLedger(s.saved)
		s.saved = nil
		clear(s.damaged)
	case s.rng.IntN(2) == 0 && s.api.anyOfOurs():
		s.note("the lease is deleted, and all that is stored")
		for _, p := range s.procs[:len(s.procs)-1] {
			p.stop()
		}
		s.leader().connection.die()
		for _, name := range append(s.api.shards(), ledgerName) {
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

// anyOfOurs reports whether a Node has podCIDRs that we gave it: without one, nothing shows a process
// that finds neither lease nor ledger that there was another.
func (f *fakeAPI) anyOfOurs() bool {
	for _, node := range f.live() {
		if podCIDRs, _ := kube.PodCIDRs(node); len(podCIDRs) > 0 && f.byUs[node.UID] {
			return true
		}
	}
	return false
}

// savedLedger is a copy of what is stored, by the names of its ConfigMaps; nil: nothing is.
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

// restoreLedger puts such a copy back. Which Nodes went since it was made, and until when their
// prefixes are in quarantine, is lost with what it replaces.
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

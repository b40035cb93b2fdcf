package agent

import (
	"net/netip"
	"testing"
	"time"
)

// More dead peers than are probed at once don't keep the others from being probed, nor the updates
// from ending.
func TestManyDeadPeers(t *testing.T) {
	var peers []peer
	for a := addr("10.0.1.0"); len(peers) < 3*probesAtOnce; a = a.Next() {
		peers = append(peers, peer{a, 2})
	}
	var a answers
	known, now := map[netip.Addr]bool{}, time.Unix(1000, 0)
	for range 3 {
		probe, _ := a.update(now, peers, known)
		for _, p := range probe { // none replies
			known[p.addr] = true
		}
		now = now.Add(answerTime)
	}
	if len(known) != len(peers) {
		t.Errorf("%d of %d peers were probed", len(known), len(peers))
	}
	a.update(now, peers, known)
	now = now.Add(silenceLimit)
	if _, soon := a.update(now, peers, known); soon || len(a.unresolved(now)) != len(peers) {
		t.Errorf("%d peers are unresolved; another update soon: %t", len(a.unresolved(now)), soon)
	}
}

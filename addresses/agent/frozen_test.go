package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// frozen has ports that do not respond until a time.
type frozen struct {
	mu    sync.Mutex
	until map[int]time.Time
}

func (f *frozen) freeze(port int, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until[port] = time.Now().Add(d)
}

// check returns late after a timeout, as on a busy machine.
func (f *frozen) check(ctx context.Context, at netip.AddrPort) error {
	f.mu.Lock()
	responds := time.Until(f.until[int(at.Port())])
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		late := 2 * time.Millisecond
		if at.Port() == addresses.AgentPort {
			late = 5 * time.Millisecond
		}
		time.Sleep(late)
		return ctx.Err()
	case <-time.After(responds):
		return nil
	}
}

// A node that does not respond is reported after 0.75 to 0.9 s, at any times of the checks, also
// after an earlier failure. If only kube-proxy does not respond, it takes as long as three checks.
func TestPauses(t *testing.T) {
	const ms, long = time.Millisecond, time.Minute
	for name, c := range map[string]struct {
		proxy, agent   time.Duration
		gone           bool // no agent responds since long before
		earliest, last time.Duration
	}{
		"a node that failed":                   {proxy: long, agent: long, earliest: 750 * ms, last: 920 * ms},
		"a node for 0.92 s":                    {proxy: 920 * ms, agent: 920 * ms, earliest: 750 * ms, last: 920 * ms},
		"a node for 0.74 s":                    {proxy: 740 * ms, agent: 740 * ms},
		"kube-proxy failed":                    {proxy: long, earliest: 900 * ms, last: 1220 * ms},
		"kube-proxy for 0.89 s":                {proxy: 890 * ms},
		"kube-proxy for 0.89 s, and no agent":  {proxy: 890 * ms, gone: true},
		"an agent for 9 s":                     {agent: 9 * time.Second},
		"an agent for 9 s, kube-proxy for 0.3": {proxy: 300 * ms, agent: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for offset := time.Duration(0); offset < checkEvery; offset += checkEvery / 20 {
				synctest.Test(t, func(t *testing.T) {
					f := &frozen{until: map[int]time.Time{}}
					changes := make(chan struct{}, 10)
					w := newWatcher(f.check, func() { changes <- struct{}{} })
					defer w.stop()
					want := map[addresses.Endpoint][]netip.AddrPort{}
					ports := []int{addresses.ProxyPort, addresses.AgentPort}
					for _, port := range ports {
						want[addresses.Endpoint{Node: "b", Port: port}] = []netip.AddrPort{
							netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(port)),
						}
						f.freeze(port, 15*time.Second) // an earlier failure
					}
					w.set(t.Context(), want)
					if c.gone {
						f.freeze(addresses.AgentPort, time.Hour)
					}
					time.Sleep(20*time.Second + offset)
					f.freeze(addresses.ProxyPort, c.proxy)
					if !c.gone {
						f.freeze(addresses.AgentPort, c.agent)
					}
					for len(changes) > 0 {
						<-changes
					}
					began, took := time.Now(), time.Duration(0)
					select {
					case <-changes:
						took = time.Since(began)
					case <-time.After(9500 * ms):
					}
					if took < c.earliest || took > c.last {
						t.Errorf("at %s: reported after %s, want %s to %s", offset, took, c.earliest, c.last)
					}
					proxy := addresses.Endpoint{Node: "b", Port: addresses.ProxyPort}
					if took > 0 && !slices.Contains(w.silent(), proxy) {
						t.Errorf("at %s: reported %v", offset, w.silent())
					}
				})
			}
		})
	}
}

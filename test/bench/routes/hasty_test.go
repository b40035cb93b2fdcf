package routes_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// hasty is a server list without the check that it is complete: it takes any response for complete,
// and missing servers for deleted.
type hasty struct {
	api     *hcloud.Client
	network int64

	mu   sync.Mutex
	list []cloud.Machine
}

func newHasty(l *simcluster.Cluster) *hasty {
	return &hasty{network: l.Network.ID, api: administrator(l)}
}

func (h *hasty) List(ctx context.Context, _ time.Time) ([]cloud.Machine, error) {
	found, err := h.api.Server.All(ctx)
	if err != nil {
		return nil, err
	}
	var list []cloud.Machine
	for _, s := range found {
		server := cloud.Machine{ID: s.ID, Name: s.Name}
		for _, private := range s.PrivateNet {
			if private.Network.ID == h.network {
				server.PrivateIP, _ = netip.AddrFromSlice(private.IP.To4())
			}
		}
		list = append(list, server)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = list
	return list, nil
}

func (h *hasty) Look(ctx context.Context, _ []cloud.Question) ([]cloud.Machine, error) {
	return h.List(ctx, time.Time{})
}

func (h *hasty) Get(_ context.Context, id int64) (cloud.Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.list {
		if s.ID == id {
			return s, nil
		}
	}
	return cloud.Machine{}, fmt.Errorf("server %d: %w", id, cloud.ErrNoServer)
}

// The schedules detect faults: a manager without the completeness check causes harm in them.
func TestTheSchedulesCatchAHastyManager(t *testing.T) {
	const count, least = 40, 5
	harmful := runSchedules(t, 0, count, func(l *simcluster.Cluster) simcluster.Options {
		return simcluster.Options{
			Lifecycle: true, Servers: func(cloud.Servers) cloud.Servers { return newHasty(l) },
		}
	})
	t.Logf("%d of %d schedules catch it", len(harmful), count)
	if len(harmful) < least {
		t.Errorf("only %d of %d schedules catch a manager without the completeness check", len(harmful), count)
	}
}

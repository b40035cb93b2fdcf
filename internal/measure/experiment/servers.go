package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// Server is a throw-away server in the shared network.
type Server struct {
	ID   int64
	Name string
	// Public4 is its public IPv4 address. Public6 is its address in Net6, the /64 that is its own.
	Public4, Public6 netip.Addr
	Net6             netip.Prefix
	// Private is its address in the shared network.
	Private netip.Addr
	// Program is asked inside it; nil in a run by the API alone. It may not have started yet: see
	// [Bench.Inside].
	Program Program

	answered bool  // the program did
	silent   error // why it doesn't
}

func (s *Server) ref() *hcloud.Server { return &hcloud.Server{ID: s.ID} }

// booting is how long a server may take from its start until its program answers.
const booting = 5 * time.Minute

// bootingSimulated is it for a simulated server: hcloud-sim alone runs no programs in it.
const bootingSimulated = time.Minute

// simulated is the range of the public addresses of the simulator's servers, which no server of a
// real cloud has: it is reserved for benchmarks.
func simulated() netip.Prefix { return netip.MustParsePrefix("198.18.0.0/15") }

// boot is how long the server may take, and what is most likely missing if it takes so long.
func (s *Server) boot() (most time.Duration, needs string) {
	if simulated().Contains(s.Public4) {
		return bootingSimulated, "it is simulated, and hcloud-sim runs no programs: --api-only leaves out what needs them"
	}
	return booting, fmt.Sprintf(
		"it needs an --image with cloud-init and Python 3.9 or later, and this machine must reach its port %d", inside.Port)
}

// Server returns the n-th of the shared servers, from 0: it runs, and is in the shared network.
func (b *Bench) Server(ctx context.Context, n int) (*Server, error) {
	return b.shared.servers[n].get(func() (*Server, error) {
		s, err := b.newServer(ctx, fmt.Sprintf("server-%d", n))
		if err != nil {
			return nil, fmt.Errorf("making server %d (%s with %s in %s)%s: %w",
				n, b.ServerType, b.Image, b.Location, remedy(err), err)
		}
		return s, nil
	})
}

// remedy is what helps against an error of a creation.
func remedy(err error) string {
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeResourceUnavailable):
		return ", of which there is none now: choose another --server-type or --location"
	case hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound):
		return "; if there is no such thing, choose another --server-type, --image or --location"
	}
	return ""
}

// Inside returns the n-th of the shared servers when its program answers. If it doesn't for minutes,
// it isn't waited for again.
func (b *Bench) Inside(ctx context.Context, n int) (*Server, error) {
	s, err := b.Server(ctx, n)
	if err != nil {
		return nil, err
	}
	if s.Program == nil {
		return nil, errors.New("there is no program inside the servers of a run by the API alone")
	}
	if s.silent != nil {
		return nil, s.silent
	}
	most, needs := s.boot()
	if !s.answered {
		b.say("waiting for the program in server %d, for up to %g minutes", n, most.Minutes())
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := s.Program.Ready(limited); err != nil {
		s.silent = fmt.Errorf("waiting for the program in server %d (%s): %w", n, needs, err)
	}
	s.answered = s.silent == nil
	return s, s.silent
}

func (b *Bench) newServer(ctx context.Context, what string) (*Server, error) {
	n, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	var key *hcloud.SSHKey
	err = b.again(ctx, func() (err error) {
		key, err = b.Project.Key(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.say("making %s (%s with %s in %s)", what, b.ServerType, b.Image, b.Location)
	opts := hcloud.ServerCreateOpts{
		Name: b.Project.Name(what), Labels: b.Project.Labels(),
		ServerType: &hcloud.ServerType{Name: b.ServerType}, Image: &hcloud.Image{Name: b.Image},
		Location: &hcloud.Location{Name: b.Location}, SSHKeys: []*hcloud.SSHKey{key},
		Networks: []*hcloud.Network{n.ref()},
	}
	var at func(netip.Addr) Program
	if b.Programs != nil {
		if opts.UserData, at, err = b.Programs.Prepare(what); err != nil {
			return nil, fmt.Errorf("preparing the program of %s: %w", what, err)
		}
	}
	server, err := b.createServer(ctx, opts)
	if err != nil {
		return nil, err
	}
	s, err := b.awaitServer(ctx, server.ID, n)
	if err != nil {
		return nil, err
	}
	if at != nil {
		s.Program = at(s.Public4)
	}
	return s, nil
}

// createServer makes a server and waits for the actions that follow.
func (b *Bench) createServer(ctx context.Context, opts hcloud.ServerCreateOpts) (*hcloud.Server, error) {
	var actions []*hcloud.Action
	server, err := created(ctx, b, func() (*hcloud.Server, error) {
		result, _, err := b.client().Server.Create(ctx, opts)
		actions = append([]*hcloud.Action{result.Action}, result.NextActions...)
		return result.Server, err
	})
	if err != nil {
		return nil, err
	}
	return server, b.await(ctx, actions...)
}

// awaitServer waits until a server runs and is in the network.
func (b *Bench) awaitServer(ctx context.Context, id int64, n *Network) (*Server, error) {
	var s *Server
	err := until(ctx, "it doesn't run, or is not in its network,", func() (bool, error) {
		now, _, err := b.client().Server.GetByID(ctx, id)
		if err != nil {
			return false, err
		}
		if now == nil {
			return false, errGone
		}
		s = b.serverFrom(now, n)
		return now.Status == hcloud.ServerStatusRunning && s.Private.IsValid(), nil
	})
	return s, err
}

func (b *Bench) serverFrom(now *hcloud.Server, n *Network) *Server {
	s := &Server{
		ID: now.ID, Name: now.Name,
		Public4: ipnet.Addr(now.PublicNet.IPv4.IP), Net6: ipnet.Prefix(now.PublicNet.IPv6.Network),
	}
	if s.Net6.IsValid() {
		s.Public6 = s.Net6.Addr().Next() // the images' own choice
	}
	for _, at := range now.PrivateNet {
		if at.Network != nil && at.Network.ID == n.ID {
			s.Private = ipnet.Addr(at.IP)
		}
	}
	return s
}

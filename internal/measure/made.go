package measure

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/ipnet"
)

// networkRange is the network's. Members are in its first /24; routes use the rest.
var networkRange = netip.MustParsePrefix("10.200.0.0/16")

// settled limits the time until a change is visible after its actions have ended.
const settled = time.Minute

const namePrefix = "underlay-measure-"

func name(what string) string { return namePrefix + what }

func labels() map[string]string { return map[string]string{Label: ""} }

func (r *run) location() *hcloud.Location { return &hcloud.Location{Name: r.options.Location} }

func (r *run) makeNetwork(ctx context.Context) (*hcloud.Network, error) {
	r.progress("creating a network")
	at, _, err := r.client.Location.GetByName(ctx, r.options.Location)
	if err == nil && at == nil {
		err = errors.New("it does not exist")
	}
	if err != nil {
		return nil, fmt.Errorf("location %q: %w", r.options.Location, err)
	}
	network, _, err := r.client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: name("network"), Labels: labels(), IPRange: ipnet.Of(networkRange),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: at.NetworkZone,
			IPRange: ipnet.Of(netip.PrefixFrom(networkRange.Addr(), 24)),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("creating a network: %w", err)
	}
	return network, nil
}

// makeBalancer creates the load balancer and waits until it is attached to the network.
func (r *run) makeBalancer(ctx context.Context) (*hcloud.LoadBalancer, error) {
	network, err := r.network()
	if err != nil {
		return nil, err
	}
	r.progress("creating a load balancer")
	result, _, err := r.client.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: name("load-balancer"), Labels: labels(), Location: r.location(), Network: network,
		LoadBalancerType: &hcloud.LoadBalancerType{Name: r.options.LoadBalancerType},
	})
	if err == nil {
		err = r.wait(ctx, result.Action)
	}
	if err != nil {
		return nil, fmt.Errorf("creating a load balancer: %w", err)
	}
	lb := result.LoadBalancer
	err = until(ctx, settled, "the load balancer is in its network", func() (bool, error) {
		lb, _, err = r.client.LoadBalancer.GetByID(ctx, result.LoadBalancer.ID)
		return err == nil && lb != nil && len(lb.PrivateNet) > 0, err
	})
	return lb, err
}

type server struct {
	*hcloud.Server
	public4, public6, private netip.Addr
	*program
}

func (r *run) makeServer(ctx context.Context, n int) (*server, error) {
	network, err := r.network()
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("server-%d", n)
	key, err := r.makeKey(ctx, what)
	if err != nil {
		return nil, err
	}
	r.progress("creating " + what)
	secret := rand.Text()
	result, _, err := r.client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: name(what), Labels: labels(), Location: r.location(),
		ServerType: &hcloud.ServerType{Name: r.options.ServerType},
		Image:      &hcloud.Image{Name: r.options.Image}, SSHKeys: []*hcloud.SSHKey{key},
		Networks: []*hcloud.Network{network}, UserData: userData(secret),
	})
	if err == nil {
		err = r.wait(ctx, append(result.NextActions, result.Action)...)
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s (%s with %s in %s): %w", what, r.options.ServerType,
			r.options.Image, r.options.Location, err)
	}
	s := &server{}
	err = until(ctx, settled, what+" runs and is in its network", func() (bool, error) {
		s.Server, _, err = r.client.Server.GetByID(ctx, result.Server.ID)
		if err != nil || s.Server == nil {
			return false, err
		}
		s.private = privateIn(s.Server, network)
		return s.Status == hcloud.ServerStatusRunning && s.private.IsValid(), nil
	})
	if err != nil {
		return nil, err
	}
	s.public4 = ipnet.Addr(s.PublicNet.IPv4.IP)
	if s.PublicNet.IPv6.Network != nil {
		s.public6 = ipnet.Prefix(s.PublicNet.IPv6.Network).Addr().Next() // as images configure it
	}
	s.program = newProgram(what, s.public4, secret, r.options.Dial)
	return s, nil
}

func privateIn(s *hcloud.Server, network *hcloud.Network) netip.Addr {
	for _, at := range s.PrivateNet {
		if at.Network != nil && at.Network.ID == network.ID {
			return ipnet.Addr(at.IP)
		}
	}
	return netip.Addr{}
}

// ready returns the n-th server after its program replies and its private interface is up.
func (r *run) ready(ctx context.Context, n int) (*server, error) {
	s, err := r.servers[n]()
	if err != nil {
		return nil, err
	}
	r.progress("waiting for the program in " + s.program.server)
	var last error
	err = until(ctx, booting, "the program replies, which takes an --image with cloud-init and "+
		"Python 3.9, and a way to its TCP port "+programPort+"; the servers of hcloud-sim run none, "+
		"use --api-only", func() (bool, error) {
		_, last = s.device(ctx, s.private)
		return last == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, last)
	}
	return s, nil
}

func (r *run) pair() (from, to *server, err error) {
	if from, err = r.programs[0](); err != nil {
		return nil, nil, err
	}
	to, err = r.programs[1]()
	return from, to, err
}

// makeKey uploads an SSH key and discards its private key: without a key, the root password of a
// server would be mailed to the account's owner.
func (r *run) makeKey(ctx context.Context, what string) (*hcloud.SSHKey, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	const algorithm = "ssh-ed25519" // RFC 8709
	var blob []byte
	for _, part := range [][]byte{[]byte(algorithm), public} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(part)))
		blob = append(blob, part...)
	}
	key, _, err := r.client.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{
		Name: name(what), Labels: labels(),
		PublicKey: algorithm + " " + base64.StdEncoding.EncodeToString(blob),
	})
	if err != nil {
		return nil, fmt.Errorf("creating an SSH key: %w", err)
	}
	return key, nil
}

// aim is a target of the load balancer: a server at its private address, at an IPv6 address, or
// otherwise at its primary IPv4 address.
type aim struct {
	server  *server
	private bool
	at      netip.Addr
}

// target adds a server as target; the returned function removes it again.
func (r *run) target(ctx context.Context, lb *hcloud.LoadBalancer, a aim) (func(), error) {
	err := r.changeTarget(ctx, lb, a, "add_target")
	return func() {
		if err == nil {
			r.drop(r.changeTarget(ctx, lb, a, "remove_target"))
		}
	}, err
}

// changeTarget sends a raw request: hcloud-go v2.52.0 can't send a server's address.
func (r *run) changeTarget(
	ctx context.Context, lb *hcloud.LoadBalancer, a aim, action string,
) error {
	to := map[string]any{"id": a.server.ID}
	if a.at.IsValid() {
		to["ip"] = a.at
	}
	body := map[string]any{"type": "server", "server": to}
	if action == "add_target" {
		body["use_private_ip"] = a.private
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/load_balancers/%d/actions/%s", lb.ID, action)
	request, err := r.client.NewRequest(ctx, http.MethodPost, path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	var reply struct {
		Action schema.Action `json:"action"`
	}
	if _, err := r.client.Do(request, &reply); err != nil {
		return err
	}
	return r.wait(ctx, hcloud.ActionFromSchema(reply.Action))
}

// drop reports a failed cleanup, which may affect subsequent facts.
func (r *run) drop(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.progress("cleaning up: " + err.Error())
	}
}

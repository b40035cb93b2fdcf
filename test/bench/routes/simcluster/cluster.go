// Package simcluster is a cluster on the simulated cloud in one process: servers, Nodes, an API
// server that keeps resource versions, and managers that consist of the real controllers over the
// real cloud client. In a bubble of testing/synctest, hours of a cluster pass in a second, at the
// cloud's pace.
//
// It is for tests of routes and Nodes. It must never decide anything for them: it creates machines,
// injects faults, and records the effects.
package simcluster

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Token is the project's API token.
const Token = "right"

// Name of the network, and its ranges.
const (
	NetworkName  = "cluster"
	NetworkRange = "10.0.0.0/8"
	SubnetRange  = "10.0.0.0/16"
	PodRange     = "10.244.0.0/16"
)

// Pace is the cloud's pace in most tests: 20 ms for a request, 200 to 600 ms for an action, one
// change of the network at a time.
func Pace() hcloudsim.Options {
	return hcloudsim.Options{
		Latency: 20 * time.Millisecond, ActionTime: 200 * time.Millisecond,
		ActionJitter: 400 * time.Millisecond,
	}
}

// Cluster is a project and a cluster in it.
type Cluster struct {
	Sim     *hcloudsim.Simulator
	API     *API
	Network schema.Network

	// Meddle, if set before managers start, wraps their transport to the cloud.
	Meddle func(http.RoundTripper) http.RoundTripper

	token func() (string, error)
	nodes int // created so far
	watch watchdog
}

// New creates a project with an empty network, and a cluster without Nodes.
func New(o hcloudsim.Options) (*Cluster, error) {
	l := &Cluster{token: func() (string, error) { return Token, nil }}
	o.Token, o.OnChange = Token, l.changed
	l.API = newAPI(l.deleting)
	l.Sim = hcloudsim.New(o)
	return l, l.CreateNetwork()
}

// UseToken makes managers read the token before every request.
func (l *Cluster) UseToken(token func() (string, error)) { l.token = token }

// CreateNetwork creates the network, or another one after it was deleted.
func (l *Cluster) CreateNetwork() error {
	var err error
	l.Network, err = l.Sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: NetworkName, IPRange: netip.MustParsePrefix(NetworkRange),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix(SubnetRange)}},
	})
	return err
}

// Machine describes a server and its Node.
type Machine struct {
	Name string
	// PodCIDRs of the Node; nil: the next IPv4 /24 with an IPv6 /64. Empty: none.
	PodCIDRs []string
	// NotReady: the kubelet hasn't reported that it is ready.
	NotReady bool
	// Detached servers are not in the network.
	Detached bool
	AliasIPs []netip.Addr
	// Unnamed Nodes have no provider ID yet.
	Unnamed bool
}

// Rent creates a server.
func (l *Cluster) Rent(m Machine) (schema.Server, error) {
	seed := hcloudsim.ServerSeed{Name: m.Name, AliasIPs: m.AliasIPs}
	if !m.Detached {
		seed.Network = l.Network.ID
	}
	return l.Sim.CreateServer(seed)
}

// Add creates a server and its Node, as though it had been initialized.
func (l *Cluster) Add(ctx context.Context, m Machine) (*corev1.Node, error) {
	server, err := l.Rent(m)
	if err != nil {
		return nil, err
	}
	return l.Register(ctx, m, server.ID)
}

// NextPodCIDRs returns podCIDRs that no Node had before.
func (l *Cluster) NextPodCIDRs() []string {
	l.nodes++
	return []string{fmt.Sprintf("10.244.%d.0/24", l.nodes-1), fmt.Sprintf("fd00:10:244:%x::/64", l.nodes-1)}
}

// Register creates the Node of a server.
func (l *Cluster) Register(ctx context.Context, m Machine, server int64) (*corev1.Node, error) {
	if m.PodCIDRs == nil {
		m.PodCIDRs = l.NextPodCIDRs()
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, UID: types.UID(fmt.Sprintf("uid-%s-%d-%d", m.Name, server, l.nodes)), CreationTimestamp: metav1.Now(),
		},
		Spec:   corev1.NodeSpec{PodCIDRs: m.PodCIDRs},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready(!m.NotReady)}},
	}
	if len(m.PodCIDRs) > 0 {
		node.Spec.PodCIDR = m.PodCIDRs[0]
	}
	if !m.Unnamed {
		node.Spec.ProviderID = kube.FormatProviderID(server)
	}
	return l.API.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
}

func ready(is bool) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now(),
	}
	if is {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// ServerOf returns the server of a Node's provider ID, if it exists.
func (l *Cluster) ServerOf(node *corev1.Node) (schema.Server, bool) {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return schema.Server{}, false
	}
	return l.Sim.Server(id)
}

// AddressOf returns a server's address in the network, or the zero Addr.
func (l *Cluster) AddressOf(server schema.Server) netip.Addr {
	for _, private := range server.PrivateNet {
		if private.Network == l.Network.ID {
			a, err := netip.ParseAddr(private.IP)
			if err == nil {
				return a
			}
		}
	}
	return netip.Addr{}
}

// Routes are the network's routes: gateways by destination.
func (l *Cluster) Routes() map[netip.Prefix]netip.Addr {
	out := map[netip.Prefix]netip.Addr{}
	network, _ := l.Sim.Network(l.Network.ID)
	for _, r := range network.Routes {
		out[netip.MustParsePrefix(r.Destination)] = netip.MustParseAddr(r.Gateway)
	}
	return out
}

// Spent counts requests by their purpose.
type Spent struct {
	All, Refused              int
	NetworkReads, ServerPages int
	Writes, Polls             int
}

// Spent counts the requests since the log was emptied.
func (l *Cluster) Spent() Spent {
	var s Spent
	for _, r := range l.Sim.Requests() {
		s.All++
		if r.Status >= 400 {
			s.Refused++
		}
		path := strings.TrimPrefix(r.Path, "/v1")
		switch {
		case r.Method != "GET":
			s.Writes++
		case strings.HasPrefix(path, "/networks"):
			s.NetworkReads++
		case path == "/servers":
			s.ServerPages++
		case strings.HasPrefix(path, "/actions"):
			s.Polls++
		}
	}
	return s
}

// ActionTime is the sum of the times that actions of a command took since then.
func (l *Cluster) ActionTime(since time.Time, commands ...string) (sum time.Duration, count int) {
	for _, a := range l.Sim.Actions() {
		for _, command := range commands {
			if a.Command == command && !a.Started.Before(since) && a.Finished != nil {
				sum, count = sum+a.Finished.Sub(a.Started), count+1
			}
		}
	}
	return sum, count
}

package survey

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// GracePeriod is how long a Node may be without what it is to get, or be there when
// it is to go, before that is trouble. It takes seconds where all is well, and
// longer where a thousand Nodes come or go at once.
const GracePeriod = 5 * time.Minute

// report is how often a kubelet at least tells how its Node is, by default
// (nodeStatusReportFrequency of the kubelet's configuration).
const report = 5 * time.Minute

// Outlook says what becomes of a Node whose server doesn't exist.
//
// After a server is deleted its Node stays Ready until kube-controller-manager
// misses the kubelet, within a minute. Then the CCM asks the cloud, every five
// seconds, and deletes the Node; its route and its podCIDRs follow. A Node that is
// Ready is never asked about.
type Outlook string

const (
	// Leaving: the Node isn't Ready, or is being deleted, and goes by itself.
	Leaving Outlook = "leaving"
	// Unsure: the Node counts as Ready. Its server was deleted just now, or is
	// another one than the provider ID says.
	Unsure Outlook = "unsure"
	// Overdue: the Node isn't Ready for longer than GracePeriod, and is still there.
	Overdue Outlook = "overdue"
	// Misnamed: the CCM never found the server that the kubelet says it runs on.
	Misnamed Outlook = "misnamed"
	// Replaced: another server has the Node's name, and the Node was not deleted
	// in between.
	Replaced Outlook = "replaced"
	// Unmissed: the kubelet is silent, and the Node counts as Ready all the same.
	Unmissed Outlook = "unmissed"
)

// Absence is what is known of a Node whose server doesn't exist.
type Absence struct {
	// Server is the ID that no server has.
	Server  int64
	Outlook Outlook
	// Text says for people what is so, and what will become of it.
	Text string
}

// Passes reports whether nothing is to be done, as far as one look can tell.
func (a Absence) Passes() bool { return a.Outlook == Leaving || a.Outlook == Unsure }

// Absences are the Nodes whose servers don't exist, by the Node's name: those with
// the provider ID of a server of this cloud that the project doesn't have. It
// needs PartNodes and PartServers, and fails where no server of any Node is seen:
// that says more about the token than about them.
func (s *Snapshot) Absences() (map[string]Absence, error) {
	g, err := s.Gateways()
	if err != nil {
		return nil, err
	}
	out := map[string]Absence{}
	for _, n := range s.Nodes {
		id, ours := serverID(n)
		if missing, ok := g.Missing[n.Name]; ok && ours && !missing.Detached {
			out[n.Name] = s.absence(n, id)
		}
	}
	return out, nil
}

func (s *Snapshot) absence(n *corev1.Node, id int64) Absence {
	a := Absence{Server: id}
	a.Outlook, a.Text = s.outlook(n)
	a.Text = fmt.Sprintf("no server has the ID %d of its provider ID; %s", id, a.Text)
	return a
}

// outlook is about a Node without a server.
func (s *Snapshot) outlook(n *corev1.Node) (Outlook, string) {
	age := func(t time.Time) time.Duration { return s.Taken.Sub(t) }
	ready := kube.Condition(n, corev1.NodeReady)
	since := n.CreationTimestamp.Time
	if ready != nil {
		since = ready.LastTransitionTime.Time
	}
	switch {
	case !n.DeletionTimestamp.IsZero():
		return Leaving, "the Node is being deleted"
	case !kube.Ready(n) && age(since) < GracePeriod:
		return Leaving, "the Node is not Ready, and the cloud controller manager deletes such Nodes"
	case !kube.Ready(n):
		return Overdue, "the Node is not Ready since " + clock(since) + ", and the cloud controller manager deletes such a Node within a minute of its server"
	case Uninitialized(n) && age(n.CreationTimestamp.Time) >= GracePeriod:
		return Misnamed, "the Node is Ready and was never initialized: its kubelet was started with a provider ID that is not its server's"
	}
	if other := s.namesake(n); other != nil && age(other.Created) >= GracePeriod {
		return Replaced, fmt.Sprintf("server %s has the Node's name since %s, and the Node still has the provider ID of the one before", other.ProviderID(), clock(other.Created))
	}
	if heard := ready.LastHeartbeatTime.Time; !heard.IsZero() && age(heard) >= report+GracePeriod {
		return Unmissed, "its kubelet was heard of last at " + clock(heard) + ", and the Node counts as Ready all the same"
	}
	return Unsure, "the Node counts as Ready: if the server was deleted just now, it will not for longer than a minute, and the cloud controller manager then deletes it; else the provider ID is wrong"
}

// namesake is the server that has the Node's name, nil if none has.
func (s *Snapshot) namesake(n *corev1.Node) *cloud.Server {
	i := slices.IndexFunc(s.Servers, func(server cloud.Server) bool { return server.Name == n.Name })
	if i < 0 {
		return nil
	}
	return &s.Servers[i]
}

// Uninitialized reports whether the CCM has yet to describe the Node.
func Uninitialized(n *corev1.Node) bool {
	return kube.Tainted(n, cloudproviderapi.TaintExternalCloudProvider)
}

// clock is a time as the pages show it.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// servedNodes are the Nodes that have a server, as far as that can be told: no
// load balancer can take any other as a target.
func (s *Snapshot) servedNodes() []*corev1.Node {
	if !s.Saw(PartServers) {
		return s.Nodes
	}
	absent, err := s.Absences()
	if err != nil || len(absent) == 0 {
		return s.Nodes
	}
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n *corev1.Node) bool {
		_, gone := absent[n.Name]
		return gone
	})
}

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

// GracePeriod is how long a Node may lack an expected state, or exist although it should be
// deleted. Both take seconds, and longer if a thousand Nodes are added or removed at once.
const GracePeriod = 5 * time.Minute

// Outlook classifies Nodes without a server.
//
// After a server is deleted, its Node remains Ready until kube-controller-manager misses the
// kubelet's heartbeat, within a minute. Then the CCM, which checks every five seconds, deletes
// the Node; its route and its podCIDRs follow. It never queries the cloud about a Ready Node.
type Outlook string

const (
	// Leaving: the Node is not Ready or is being deleted, and needs no intervention.
	Leaving Outlook = "leaving"
	// Unsure: the Node is Ready. Its server was just deleted, or its provider ID is wrong.
	Unsure Outlook = "unsure"
	// Overdue: the Node has not been Ready for at least GracePeriod and still exists.
	Overdue Outlook = "overdue"
	// Misnamed: the Node's provider ID is not its server's.
	Misnamed Outlook = "misnamed"
)

// Absence describes a Node whose server doesn't exist.
type Absence struct {
	Outlook Outlook
	// Text describes the state and the expected outcome.
	Text string
}

// Passes reports whether no intervention is needed, as far as one Snapshot shows.
func (a Absence) Passes() bool { return a.Outlook == Leaving || a.Outlook == Unsure }

// Absences returns the Nodes whose servers don't exist, by name: the project has no server with
// the ID of their provider ID. It requires PartNodes and PartServers, and returns an error if no
// Node's server is found, because then the token is probably of another project.
func (s *Snapshot) Absences() (map[string]Absence, error) {
	g, err := s.Gateways()
	if err != nil {
		return nil, err
	}
	out := map[string]Absence{}
	for _, n := range s.Nodes {
		id, err := kube.ParseProviderID(n.Spec.ProviderID)
		if missing, ok := g.Missing[n.Name]; ok && err == nil && !missing.Detached {
			outlook, text := s.outlook(n)
			text = fmt.Sprintf("no server has the ID %d of its provider ID; %s", id, text)
			out[n.Name] = Absence{outlook, text}
		}
	}
	return out, nil
}

func (s *Snapshot) outlook(n *corev1.Node) (Outlook, string) {
	old := func(t time.Time) bool { return s.Taken.Sub(t) >= GracePeriod }
	since := n.CreationTimestamp.Time
	if ready := kube.Condition(n, corev1.NodeReady); ready != nil {
		since = ready.LastTransitionTime.Time
	}
	switch {
	case !n.DeletionTimestamp.IsZero():
		return Leaving, "the Node is being deleted"
	case !kube.Ready(n) && !old(since):
		return Leaving, "the Node is not Ready, and the cloud controller manager deletes such Nodes"
	case !kube.Ready(n):
		return Overdue,
			"the Node is not Ready since " + clock(since) +
				", and the cloud controller manager deletes such a Node within a minute of its server"
	case Uninitialized(n) && old(n.CreationTimestamp.Time):
		return Misnamed, "the Node is Ready and was never initialized: its kubelet was started with a provider ID that is not its server's"
	}
	i := slices.IndexFunc(s.Servers, func(server cloud.Machine) bool {
		return server.Name == n.Name && old(server.Created)
	})
	if i >= 0 { // the Node was not deleted in between
		return Misnamed, fmt.Sprintf("server %s has the Node's name since %s, and the Node still has the provider ID of the one before", s.Servers[i].ProviderID(), clock(s.Servers[i].Created))
	}
	return Unsure, "the Node counts as Ready: if the server was deleted just now, it will not for longer than a minute, and the cloud controller manager then deletes it; else the provider ID is wrong"
}

// Uninitialized reports whether the CCM has not yet initialized the Node.
func Uninitialized(n *corev1.Node) bool {
	return kube.Tainted(n, cloudproviderapi.TaintExternalCloudProvider)
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// servedNodes returns the Nodes with a server, which targets require, or all if that is unknown.
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

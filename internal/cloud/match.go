package cloud

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

var (
	// ErrNoMatch: no server in the list is the Node's.
	ErrNoMatch = errors.New("no matching server")
	// ErrAmbiguous: two servers could be the Node's, so none is taken.
	ErrAmbiguous = errors.New("more than one server matches")
)

// match finds a Node's server. A provider ID decides alone: names and addresses
// may change or be taken over by others. Without one it goes by the name, else
// by the address that the kubelet reported; where those point to
// different servers, nobody guesses.
func (ix *index) match(node *corev1.Node) (*Server, error) {
	if node.Spec.ProviderID != "" {
		id, err := kube.ParseProviderID(node.Spec.ProviderID)
		if err != nil {
			return nil, err
		}
		if s, ok := ix.byID[id]; ok {
			return s, nil
		}
		return nil, fmt.Errorf("%w: no server has the ID %d of the provider ID", ErrNoMatch, id)
	}
	named := ix.byName[node.Name]
	if len(named) > 1 {
		return nil, fmt.Errorf("%w: %d servers are named %q", ErrAmbiguous, len(named), node.Name)
	}
	reported, err := ix.reported(node)
	if err != nil {
		return nil, err
	}
	switch {
	case len(named) == 0 && reported == nil:
		return nil, fmt.Errorf("%w: none is named %q or has an address that the kubelet reported", ErrNoMatch, node.Name)
	case len(named) == 0:
		return reported, nil
	case reported != nil && reported.ID != named[0].ID:
		return nil, fmt.Errorf("%w: server %d has the Node's name %q, server %d the address that the kubelet reported; rename one, or start the kubelet with --provider-id",
			ErrAmbiguous, named[0].ID, node.Name, reported.ID)
	default:
		return named[0], nil
	}
}

// reported is the server that has an address of the Node's in the network, nil
// if there is none.
func (ix *index) reported(node *corev1.Node) (*Server, error) {
	addrs := append(kube.InternalIPs(node), kube.ProvidedIPs(node)...)
	var found *Server
	for _, a := range addrs {
		s := ix.byAddr[a]
		if s == nil {
			continue
		}
		if found != nil && found.ID != s.ID {
			return nil, fmt.Errorf("%w: the addresses that the kubelet reported belong to servers %d and %d", ErrAmbiguous, found.ID, s.ID)
		}
		found = s
	}
	return found, nil
}

// doubt returns an error unless the list is of the cluster's own project. A token
// of another project sees none of the Nodes' servers, and that it sees none is
// true and proves nothing. IDs are unique among all customers of the provider, so
// a single server of a Node proves the project.
func (ix *index) doubt(nodes []*corev1.Node) error {
	absent := 0
	for _, node := range nodes {
		id, err := kube.ParseProviderID(node.Spec.ProviderID)
		switch {
		case err != nil:
		case ix.byID[id] != nil:
			return nil
		default:
			absent++
		}
	}
	if absent == 0 {
		return nil
	}
	return fmt.Errorf("the servers of %d of %d Nodes are missing from the project; "+
		"check that the token belongs to this cluster's project, and delete the Nodes by hand if they really are gone",
		absent, absent)
}

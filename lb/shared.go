package lb

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
)

// Services with the same name in [AnnotationShared] share a load balancer and form a group.
// [Group] returns the group of a Service, [Input.Plan] merges the requests of its members.

// AnnotationShared is the name of the load balancer that a Service shares.
const AnnotationShared = OwnPrefix + "shared"

// Labels of a shared load balancer. The value of [LabelShared] is its group; the value of a port's
// label is the UID of the Service that owns the port.
const (
	LabelShared     = "underlay.dev/shared"
	labelPortPrefix = "underlay.dev/port-"
)

// SharedName is the name of a load balancer that Services of several namespaces may share.
type SharedName struct {
	Name       string
	Namespaces []string
}

// Group returns the group of a Service that shares the named load balancer, or "" without a name.
// A listed name means the same load balancer in all its namespaces, and is an error in others.
//
// The group is a label value: a listed name, or else the namespace and the name, separated by a
// dot, which no name contains.
func Group(namespace, name string, listed []SharedName) (string, error) {
	if name == "" {
		return "", nil
	}
	if err := validDNSLabel(name); err != nil {
		return "", err
	}
	i := slices.IndexFunc(listed, func(s SharedName) bool { return s.Name == name })
	switch {
	case i < 0:
		return shortened(namespace, name), nil
	case slices.Contains(listed[i].Namespaces, namespace):
		return name, nil
	}
	return "", fmt.Errorf("the configuration gives this name to other namespaces: set another, or let namespace %s be added to loadBalancers.shared", namespace)
}

// shortened joins a namespace and a name to a label value. If that is too long, both are cut and a
// hash follows a second dot.
func shortened(namespace, name string) string {
	const longest, kept = 63, 22
	whole := namespace + "." + name
	if len(whole) <= longest {
		return whole
	}
	return fmt.Sprintf("%s.%s.%s", namespace[:min(len(namespace), kept)], name[:min(len(name), kept)],
		digest(whole))
}

// digest returns a hash of 16 characters that resists second preimages.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:8])
}

// sharing resolves the Service's group and refuses settings that exclude sharing.
func (p *parser) sharing() {
	name := p.set.Shared
	if name == "" {
		return
	}
	group, err := Group(p.svc.Namespace, name, p.defaults.Shared)
	if err != nil {
		p.refuse(ReasonInvalid, AnnotationShared, name, "%v", err)
	}
	p.set.Shared = group
	for _, other := range []struct {
		annotation string
		set        bool
		why        string
	}{
		{
			annotationAdopt, p.set.Takeover.Adopt,
			"a load balancer with another owner cannot be shared",
		},
		{
			AnnotationTargets, WantsPods(p.svc.Annotations),
			"the targets of a load balancer that is shared are nodes",
		},
		{AnnotationPrimaryIPv4, p.has(AnnotationPrimaryIPv4), "a primary IP is given to one Service"},
		{AnnotationPrimaryIPv6, p.has(AnnotationPrimaryIPv6), "a primary IP is given to one Service"},
	} {
		if other.set {
			p.refuse(ReasonInvalid, AnnotationShared, name, "%s: remove this, or %s", other.why,
				other.annotation)
		}
	}
}

// GroupOwner returns the owner of a group's load balancer.
func GroupOwner(cluster, group string) Owner { return Owner{Cluster: cluster, Group: group} }

// DefaultName returns the default name of the owner's load balancer. For a group it contains a
// hash of the cluster, because two clusters can have the same group.
func (o Owner) DefaultName() string {
	if o.Group == "" {
		return defaultName(o.UID)
	}
	return fmt.Sprintf("shared-%s-%s", o.Group, digest(o.Cluster+"/"+o.Group))
}

// Shared reports whether the load balancer has the label of a group.
func (s State) Shared() bool {
	_, shared := s.Labels[LabelShared]
	return shared
}

// Group returns the group that shares the load balancer; "" if it is not shared.
func (s State) Group() string { return s.Labels[LabelShared] }

// PortOwner returns the UID of the Service that owns a port of a shared load balancer.
func (s State) PortOwner(port int) string { return s.Labels[portLabel(port)] }

func portLabel(port int) string { return labelPortPrefix + strconv.Itoa(port) }

// Only returns the state with only the listeners that a Service owns.
func (s State) Only(uid string) State {
	s.Listeners = slices.DeleteFunc(slices.Clone(s.Listeners), func(l Listener) bool {
		return s.PortOwner(l.Port) != uid
	})
	return s
}

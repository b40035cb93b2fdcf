package lb

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
)

// Services that name the same load balancer in [AnnotationShared] share it: all of them together
// are its group. [Group] returns the group of a Service, [Input.Plan] what its members ask for.

// AnnotationShared names the load balancer that a Service shares with others.
const AnnotationShared = OwnPrefix + "shared"

// Labels of a load balancer that is shared. The value of [LabelShared] is its group; that of a
// port's label is the UID of the Service that owns the port.
const (
	LabelShared     = "underlay.dev/shared"
	labelPortPrefix = "underlay.dev/port-"
)

// SharedName is a load balancer that Services of several namespaces may share.
type SharedName struct {
	Name       string
	Namespaces []string
}

// Group is the group that a Service of a namespace is in which names a load balancer to share;
// nothing without a name. A name that the configuration lists means the same in all of its
// namespaces, and nothing elsewhere.
//
// The group is a label's value: the name alone if it is listed, else the namespace and the name
// with a dot between them, which no name has.
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

// shortened joins a namespace and a name to a label's value. Where that is too long, a hash stands
// for what was cut off, behind a second dot.
func shortened(namespace, name string) string {
	const longest, kept = 63, 22
	whole := namespace + "." + name
	if len(whole) <= longest {
		return whole
	}
	return fmt.Sprintf("%s.%s.%s", namespace[:min(len(namespace), kept)], name[:min(len(name), kept)], digest(whole))
}

// digest is a hash of a text that nobody can choose another text for, in 16 characters.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:8])
}

// sharing reads which load balancer the Service shares, and answers what excludes that.
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
			"a load balancer that somebody else made cannot be shared",
		},
		{
			AnnotationTargets, AsksForPods(p.svc.Annotations),
			"the targets of a load balancer that is shared are nodes",
		},
		{AnnotationPrimaryIPv4, p.has(AnnotationPrimaryIPv4), "a primary IP is given to one Service"},
		{AnnotationPrimaryIPv6, p.has(AnnotationPrimaryIPv6), "a primary IP is given to one Service"},
	} {
		if other.set {
			p.refuse(ReasonInvalid, AnnotationShared, name, "%s: remove this, or %s", other.why, other.annotation)
		}
	}
}

// GroupOwner is a group of Services as an owner.
func GroupOwner(cluster, group string) Owner { return Owner{Cluster: cluster, Group: group} }

// DefaultName is the name by default of a group's load balancer: unlike a Service's UID, a group is
// the same in two clusters.
func (o Owner) DefaultName() string {
	if o.Group == "" {
		return defaultName(o.UID)
	}
	return fmt.Sprintf("shared-%s-%s", o.Group, digest(o.Cluster+"/"+o.Group))
}

// Shared reports whether labels say that the load balancer is shared.
func (s State) Shared() bool {
	_, shared := s.Labels[LabelShared]
	return shared
}

// Group is the group that shares the load balancer; nothing if it is not shared.
func (s State) Group() string { return s.Labels[LabelShared] }

// PortOwner is the UID of the Service to which labels assign a port of a shared load balancer.
func (s State) PortOwner(port int) string { return s.Labels[portLabel(port)] }

func portLabel(port int) string { return labelPortPrefix + strconv.Itoa(port) }

// Only returns the state with the listeners of the ports that labels assign to a Service, and all
// else as it is.
func (s State) Only(uid string) State {
	s.Listeners = slices.DeleteFunc(slices.Clone(s.Listeners), func(l Listener) bool { return s.PortOwner(l.Port) != uid })
	return s
}

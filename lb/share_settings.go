package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// sharedSetting is a setting that a load balancer has only once, even if Services share it.
type sharedSetting struct {
	// annotated returns the annotation and its value, or no value if it is not set.
	annotated func(Spec) (field, value string)
	take      func(to *Spec, from Spec)
	// keep copies the setting from the load balancer.
	keep func(to *Spec, have State)
}

func valueIf(annotated bool, field, value string) (string, string) {
	if !annotated {
		return field, ""
	}
	return field, value
}

// decided returns a setting that is a single field of a Spec.
func decided[T any](
	annotation string, annotated func(Spec) bool, at func(*Spec) *T, has func(State) T,
) sharedSetting {
	return sharedSetting{
		annotated: func(s Spec) (string, string) {
			return valueIf(annotated(s), annotation, fmt.Sprint(*at(&s)))
		},
		take: func(to *Spec, from Spec) { *at(to) = *at(&from) },
		keep: func(to *Spec, have State) {
			// Without has, an address is kept if no annotation sets it.
			if has != nil {
				*at(to) = has(have)
			}
		},
	}
}

func sharedSettings() []sharedSetting {
	return []sharedSetting{
		{
			annotated: func(s Spec) (string, string) {
				return valueIf(s.Takeover.Annotated.Name, AnnotationName, s.Name)
			},
			take: func(to *Spec, from Spec) {
				if from.Takeover.Annotated.Name {
					to.Name = from.Name
				}
			},
			keep: func(to *Spec, have State) { to.Name = have.Name },
		},
		decided(AnnotationType, func(s Spec) bool { return s.Takeover.Annotated.Type },
			func(s *Spec) *string { return &s.Type }, func(have State) string { return have.Type }),
		{
			annotated: func(s Spec) (string, string) {
				field, value := AnnotationLocation, s.Location
				if value == "" {
					field, value = AnnotationNetworkZone, s.NetworkZone
				}
				return valueIf(s.Takeover.Annotated.Place && len(s.Placeless) == 0, field, value)
			},
			take: func(to *Spec, from Spec) {
				to.Location, to.NetworkZone, to.Placeless = from.Location, from.NetworkZone, from.Placeless
				to.Takeover.Annotated.Place = from.Takeover.Annotated.Place
			},
			keep: func(to *Spec, have State) { to.Location = have.Location },
		},
		decided(annotationAlgorithm, func(s Spec) bool { return s.Takeover.Annotated.Algorithm },
			func(s *Spec) *Algorithm { return &s.Algorithm }, func(have State) Algorithm {
				return have.Algorithm
			}),
		{
			annotated: func(s Spec) (string, string) {
				return valueIf(s.Takeover.Annotated.Targets, annotationPrivateIP, fmt.Sprint(s.UsePrivateIP))
			},
			take: func(to *Spec, from Spec) { to.UsePrivateIP = from.UsePrivateIP },
			keep: func(to *Spec, have State) {
				if len(have.Targets) > 0 {
					_, to.UsePrivateIP = reached(deciding(have.Targets))
				}
			},
		},
		{
			annotated: func(s Spec) (string, string) {
				return valueIf(s.Takeover.Annotated.Public, annotationPublicOff, fmt.Sprint(!s.Public))
			},
			take: func(to *Spec, from Spec) { to.Public = from.Public },
			keep: func(to *Spec, have State) { to.Public = have.Public },
		},
		decided(annotationPrivateIPv4, func(s Spec) bool { return s.PrivateIP.IsValid() },
			func(s *Spec) *netip.Addr { return &s.PrivateIP }, nil),
		decided(annotationPrivateRange, func(s Spec) bool { return s.PrivateRange.IsValid() },
			func(s *Spec) *netip.Prefix { return &s.PrivateRange }, nil),
		decided(HetznerPrefix+"ipv4-rdns", func(s Spec) bool { return s.IPv4Name != "" },
			func(s *Spec) *string { return &s.IPv4Name },
			func(have State) string { return marked(have, labelIPv4Name, have.IPv4Name) }),
		decided(HetznerPrefix+"ipv6-rdns", func(s Spec) bool { return s.IPv6Name != "" },
			func(s *Spec) *string { return &s.IPv6Name },
			func(have State) string { return marked(have, labelIPv6Name, have.IPv6Name) }),
	}
}

// marked returns a reverse DNS name if this controller set it.
func marked(have State, mark, name string) string {
	if _, ours := have.Labels[mark]; ours {
		return name
	}
	return ""
}

func (m *merger) settings() {
	m.spec = Spec{
		Owner: m.Owner, Name: m.Owner.DefaultName(), Network: m.have.Network, Public: true,
		Targeting: Targeting{UsePrivateIP: m.have.Exists() && !m.have.Public},
		Takeover:  Takeover{OptedIn: true},
		Sharing:   Sharing{PortOwners: make(map[int]string), Deciders: make(map[string]string)},
	}
	if i := slices.IndexFunc(m.sharers, Member.decides); i >= 0 {
		own := m.sharers[i].Spec
		m.spec.Network, m.spec.Subnet, m.spec.UsePrivateIP = own.Network, own.Subnet, own.UsePrivateIP
	} else {
		for _, setting := range sharedSettings() {
			setting.keep(&m.spec, m.have)
		}
		// Another load balancer may need the name.
		m.spec.Name = m.Owner.DefaultName()
	}
	for _, setting := range sharedSettings() {
		m.setting(setting)
	}
	if !m.spec.Public && !m.spec.UsePrivateIP {
		m.spec.Public = true
		if i, ok := m.deciders[annotationPublicOff]; ok {
			m.addNote(i, warningNote(ReasonNoEffect, annotationPublicOff, "true",
				"the load balancer is shared, and without its public interface it reaches nodes "+
					"only in the network, which "+annotationPrivateIP+
					" does not request: let the oldest Service that shares it set that to true, "+
					"or remove this"))
		}
	}
	if ip, in := m.spec.PrivateIP, m.spec.PrivateRange; ip.IsValid() && in.IsValid() &&
		!in.Contains(ip) {
		m.addNote(m.deciders[annotationPrivateRange], warningNote(ReasonNoEffect, annotationPrivateRange,
			in.String(),
			"the load balancer is shared, and another Service gives it the address %s, which lies "+
				"elsewhere: remove this, or that", ip))
		m.spec.PrivateRange = netip.Prefix{}
	}
	if !m.spec.Public {
		m.spec.ReverseDNS = ReverseDNS{}
	}
}

// setting applies a setting of the oldest Service that sets it. If an older Service cannot be
// parsed and may have decided it, the current value is kept.
func (m *merger) setting(setting sharedSetting) {
	decided := ""
	for i, s := range m.sharers {
		if s.Standing == Frozen && !s.Parsed && decided == "" &&
			slices.Contains(m.have.Services(), s.uid()) {
			setting.keep(&m.spec, m.have)
			decided = s.name()
			continue
		}
		field, value := setting.annotated(s.Spec)
		switch {
		case !s.decides() || value == "":
		case decided == "":
			setting.take(&m.spec, s.Spec)
			m.deciders[field], decided = i, s.name()
		default:
			if !m.has(setting, s.Spec) {
				m.addNote(i, warningNote(ReasonNoEffect, field, value,
					"the load balancer is shared, and the Service %s, which is older, decides: "+
						"remove this, or change it there", decided))
			}
		}
	}
	if i := slices.IndexFunc(m.sharers, Member.decides); i >= 0 && decided == "" {
		setting.take(&m.spec, m.sharers[i].Spec) // the configured or built-in value
	}
}

// has reports whether a setting is decided as the Service requests.
func (m *merger) has(setting sharedSetting, s Spec) bool {
	_, want := setting.annotated(s)
	decided := m.spec
	decided.Takeover.Annotated = s.Takeover.Annotated
	_, is := setting.annotated(decided)
	return want == is
}

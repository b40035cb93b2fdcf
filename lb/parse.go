package lb

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/editdistance"
)

// Parse resolves a Service and the defaults into a Spec.
//
// Notes are for the user and do not prevent a load balancer. The error is a *[RefusedError] with
// all invalid fields; then the Spec is empty, no load balancer may be created, and an existing one
// only changes its ports and targets ([Frozen]). Valid requests that cannot be fulfilled are in
// the Spec, because they may not matter to an existing load balancer: [Spec.Hindrances].
func Parse(svc Service, d Defaults) (Spec, []Note, error) {
	p := &parser{svc: svc, defaults: d.resolved()}
	p.set = p.defaults.settings(svc)
	p.annotations()
	p.sharing()
	p.pods()
	p.place()
	p.network()
	p.fields()
	p.ports()
	p.protocols()
	p.checks()
	if len(p.refused) > 0 {
		return Spec{}, p.notes, &RefusedError{Notes: slices.Concat(p.refused, p.barred, p.placeless)}
	}
	return p.spec(), p.notes, nil
}

// settings are the defaults with annotations applied, for the load balancer and for a single port.
type settings struct {
	// Spec has the fields that annotations set directly; [parser.spec] sets the others.
	Spec
	publicOff  bool
	privateOff bool   // no private address in the status
	proxyMode  string // empty: by protocol
	elsewhere  bool   // source ranges are enforced elsewhere
	local      bool   // externalTrafficPolicy is Local and applies

	certificateType string // certificateManaged: managedCert is used
	managedCert     ManagedCertificate

	// listener is the template of each port's listener. Its check is set by annotations; if
	// protocol and port are empty, it follows the traffic policy.
	listener  Listener
	checkMode CheckMode // empty: the default

	ownCertificates bool // for a port only: it has certificates of its own
}

func (d Defaults) settings(svc Service) settings {
	s := settings{
		publicOff: d.DisablePublicNetwork, privateOff: d.DisablePrivateIngress,
		local: svc.Local && !svc.PodTargets,
		listener: Listener{
			Protocol: ProtocolTCP, ProxyProtocol: d.UsesProxyProtocol,
			HTTP: HTTP{
				CookieName: defaultCookie, CookieLifetime: defaultCookieLifetime,
				IdleTimeout: defaultIdleTimeout,
			},
			Check: HealthCheck{
				Interval: d.HealthCheckInterval, Timeout: d.HealthCheckTimeout, Retries: d.HealthCheckRetries,
			},
		},
	}
	s.Owner = Owner{Cluster: d.Cluster, UID: svc.UID}
	s.Namespace, s.Service, s.HealthCheckNodePort = svc.Namespace, svc.Name, svc.HealthCheckNodePort
	s.Name, s.Type, s.Algorithm = defaultName(svc.UID), d.Type, d.Algorithm
	s.Network, s.Subnet = d.Network, d.PrivateSubnet
	s.UsePrivateIP, s.PodTargets = d.UsePrivateIP, svc.PodTargets
	s.Takeover.NoIPv6 = d.DisableIPv6
	s.LabelledCertificates = d.Certificates == CertificatesLabelled
	return s
}

type parser struct {
	svc      Service
	defaults Defaults
	set      settings

	// byPort are the settings of ports with options of their own.
	byPort    map[int]settings
	served    []Port
	notes     []Note
	refused   []Note
	barred    []Note
	placeless []Note
}

func (p *parser) refuse(reason, field, value, format string, args ...any) {
	p.refused = append(p.refused, errorNote(reason, field, value, format, args...))
}

func (p *parser) warn(reason, field, value, format string, args ...any) {
	p.notes = append(p.notes, warningNote(reason, field, value, format, args...))
}

// annotations reads the annotations in the table's order, then reports unknown annotations. An
// empty value counts as not set: templates write it for "use the default".
func (p *parser) annotations() {
	var names []string
	for _, row := range p.set.annotations() {
		names = append(names, row.Name)
		value := p.svc.Annotations[row.Name]
		if value == "" {
			continue
		}
		if err := row.set(value); err != nil {
			p.refuse(ReasonInvalid, row.Name, value, "%v", err)
		}
	}
	p.portOptions()
	p.unknown(names)
}

// unknown warns of annotations that are not in the table. Three names are documented as reserved:
// other programs may write them. Below our own prefix, other components have annotations too.
func (p *parser) unknown(names []string) {
	reserved := []string{HetznerPrefix + "id", HetznerPrefix + "ipv4", HetznerPrefix + "ipv6"}
	for _, name := range slices.Sorted(maps.Keys(p.svc.Annotations)) {
		if slices.Contains(names, name) || slices.Contains(reserved, name) {
			continue
		}
		meant, slip := editdistance.Meant(name, names)
		if !slip && strings.HasPrefix(name, HetznerPrefix) {
			meant = nearest(name, names)
		}
		if meant != "" {
			p.warn(ReasonUnknown, name, p.svc.Annotations[name],
				"no such annotation, without effect: did you mean %s?", meant)
		}
	}
}

// place sets the location or the network zone; an annotation overrides both defaults.
func (p *parser) place() {
	switch {
	case p.set.Location != "" && p.set.NetworkZone != "":
		p.placeless = append(p.placeless, errorNote(ReasonInvalid, AnnotationLocation, p.set.Location,
			"a load balancer has a location or a network zone: remove this or "+AnnotationNetworkZone))
	case p.set.Location == "" && p.set.NetworkZone == "":
		p.set.Location, p.set.NetworkZone = p.defaults.Location, p.defaults.NetworkZone
		if p.set.Location == "" && p.set.NetworkZone == "" && p.set.PrimaryIPv4.Named == "" &&
			p.set.PrimaryIPv6.Named == "" {
			p.placeless = append(p.placeless, errorNote(ReasonInvalid, AnnotationLocation, "",
				"a load balancer needs a location or a network zone: set this, "+AnnotationNetworkZone+
					", or a default in the configuration"))
		}
	}
}

func (p *parser) network() {
	attached := p.defaults.Network != 0
	if ip, in := p.set.PrivateIP, p.set.PrivateRange; ip.IsValid() && in.IsValid() &&
		!in.Contains(ip) {
		p.refuse(ReasonInvalid, annotationPrivateIPv4, ip.String(),
			"the address must lie in %s, the range of the subnet: set another, or another %s",
			in, annotationPrivateRange)
	}
	if p.set.UsePrivateIP && !attached {
		p.refuse(ReasonInvalid, annotationPrivateIP, "true",
			"no network is configured: set false, or configure the network")
	}
	if p.set.publicOff && !attached {
		p.refuse(ReasonInvalid, annotationPublicOff, "true",
			"no network is configured, so nothing could reach the load balancer: set false, or "+
				"configure the network")
	}
	if p.set.publicOff && attached && !p.set.UsePrivateIP {
		p.refuse(ReasonInvalid, annotationPublicOff, "true",
			"without its public interface the load balancer reaches nodes only in the network: "+
				"set "+annotationPrivateIP+" to true as well")
	}
	if p.set.publicOff && p.set.privateOff && p.set.Publish.Hostname == "" {
		p.warn(ReasonNoEffect, annotationPublicOff, "true",
			"with disable-private-ingress there is no address to show, so the Service stays "+
				"pending: set "+HetznerPrefix+"hostname, or remove one of them")
	}
}

// fields refuses or reports fields of the Service that the cloud does not support.
func (p *parser) fields() {
	if !openToAll(p.svc.SourceRanges) && !p.set.elsewhere {
		p.barred = append(p.barred, errorNote(ReasonUnsupported, "spec.loadBalancerSourceRanges",
			strings.Join(p.svc.SourceRanges, ","),
			"the cloud's load balancers cannot filter clients, and one without the filter would "+
				"be open to all: remove the ranges, or filter elsewhere, for example with a "+
				"NetworkPolicy, and confirm that by setting "+annotationElsewhere+" to true"))
	}
	if p.svc.IPv6Only && !p.svc.PodTargets {
		p.barred = append(p.barred, errorNote(ReasonUnsupported, "spec.ipFamilies", "IPv6",
			"load balancers reach nodes over IPv4, so the node ports must be open there: set "+
				"ipFamilyPolicy to PreferDualStack"))
	}
	if p.svc.ClientIPAffinity {
		remedy := "the nodes see the load balancer as their only client, so one pod would get everything: set sessionAffinity to None"
		if p.svc.PodTargets {
			remedy = "the load balancer chooses a pod for each connection: set sessionAffinity to None"
		}
		p.notes = append(p.notes, errorNote(ReasonUnsupported, "spec.sessionAffinity", "ClientIP", "%s",
			remedy))
	}
	if p.svc.LoadBalancerIP != "" {
		p.notes = append(p.notes, errorNote(ReasonUnsupported, "spec.loadBalancerIP",
			p.svc.LoadBalancerIP,
			"the cloud chooses the address of a load balancer: remove the field, or name a "+
				"primary IP by "+AnnotationPrimaryIPv4))
	}
}

// openToAll reports whether the ranges are empty or contain all addresses of each family in them,
// which is equivalent to no filter.
func openToAll(ranges []string) bool {
	mentioned, open := make(map[bool]bool), make(map[bool]bool) // by whether it is IPv4
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			// An unreadable range is still meant to restrict clients.
			return false
		}
		is4 := prefix.Addr().Is4()
		mentioned[is4] = true
		open[is4] = open[is4] || prefix.Bits() == 0
	}
	return maps.Equal(mentioned, open)
}

func (p *parser) ports() {
	for _, port := range p.svc.Ports {
		switch {
		case port.Protocol != "TCP":
			p.notes = append(p.notes, errorNote(ReasonUnsupported, "spec.ports", port.String(),
				"the cloud's load balancers carry TCP only, so this port is not served: move it to "+
					"a Service of its own kind, or expose it on the nodes"))
		case !p.svc.PodTargets && port.NodePort == 0:
			p.refuse(ReasonUnsupported, "spec.ports", port.String(),
				"load balancers send to node ports and this port has none: set "+
					"allocateLoadBalancerNodePorts to true, or give it a nodePort")
		case !p.svc.PodTargets || p.podPort(port):
			p.served = append(p.served, port)
		}
	}
	if len(p.served) == 0 && len(p.refused) == 0 {
		p.refuse(ReasonUnsupported, "spec.ports", "",
			"no TCP port is left to serve: add one, or choose another type of Service")
	}
}

func (p *parser) spec() Spec {
	s, spec, each := p.set, p.set.Spec, p.atPorts()
	spec.Public = !s.publicOff
	spec.Barred, spec.Placeless = p.barred, p.placeless
	spec.Takeover.OptedIn = s.PodTargets || !slices.ContainsFunc(each, settings.leavesCheck)
	spec.Takeover.Annotated = p.annotated()
	spec.Takeover.Listed = slices.Contains(p.defaults.Adoptable,
		Adoptable{Name: spec.Name, Namespace: spec.Namespace, Service: spec.Service})
	spec.Publish.IPv6 = !s.Takeover.NoIPv6 && (!p.svc.IPv4Only || p.has(annotationIPv6Off))
	spec.Publish.IPv6First = p.svc.IPv6First
	spec.Publish.Private = s.Network != 0 && !s.privateOff
	spec.Publish.Proxy = slices.ContainsFunc(each, settings.behindProxy)
	for _, given := range p.defaults.PrimaryIPs {
		if given.Namespace == spec.Namespace && given.Service == spec.Service {
			spec.GivenAddresses = append(spec.GivenAddresses, given.Name)
		}
	}
	for i, port := range p.served {
		s, l := each[i], each[i].listener
		l.Port, l.DestinationPort = port.Number, p.destination(port)
		l.HTTP, l.Check = s.listenerHTTP(), p.check(s, port)
		spec.Listeners = append(spec.Listeners, l)
		if l.Protocol == ProtocolHTTPS && s.ownCertificates {
			if spec.PortCertificates == nil {
				spec.PortCertificates = make(map[int][]string)
			}
			spec.PortCertificates[port.Number] = s.Certificates
		}
	}
	slices.SortFunc(spec.Listeners, byPort)
	needed := slices.ContainsFunc(each, settings.takesDefaultCertificate)
	if !needed || s.managed() {
		spec.Certificates = nil
	}
	if needed && s.managed() {
		managed := s.managedCert
		managed.Name = cmp.Or(managed.Name, managedPrefix+p.svc.UID)
		managed.Domains = slices.Compact(slices.Sorted(slices.Values(managed.Domains)))
		spec.Managed = &managed
	}
	if !spec.NeedsCertificates() {
		spec, _, _ = spec.Resolve(nil)
	}
	if !spec.Public {
		spec.ReverseDNS = ReverseDNS{}
	}
	if spec.Network == 0 {
		spec.Attachment = Attachment{}
	}
	return spec
}

func (p *parser) annotated() Annotated {
	return Annotated{
		Name: p.has(AnnotationName), Type: p.has(AnnotationType), Algorithm: p.has(annotationAlgorithm),
		Public: p.has(annotationPublicOff), Targets: p.has(annotationPrivateIP) || p.svc.PodTargets,
		Place:    p.has(AnnotationLocation) || p.has(AnnotationNetworkZone),
		Interval: p.has(annotationCheckInterval), Timeout: p.has(annotationCheckTimeout),
		Retries: p.has(annotationCheckRetries),
	}
}

func (p *parser) has(annotation string) bool { return p.svc.Annotations[annotation] != "" }

// Values of ipMode: how kube-proxy handles the load balancer's addresses.
const (
	modeVIP   = "VIP"
	modeProxy = "Proxy"
)

// behindProxy reports whether clients inside the cluster must connect through the load balancer:
// it adds the PROXY protocol's header, or terminates TLS and HTTP.
func (s settings) behindProxy() bool {
	if s.proxyMode != "" {
		return s.proxyMode == modeProxy
	}
	return s.listener.ProxyProtocol || s.listener.Protocol != ProtocolTCP
}

// defaultName returns the name that cloud providers of Kubernetes have always used, so that it is
// the same after a change of the controller.
func defaultName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

func nearest(name string, candidates []string) string {
	return slices.MinFunc(candidates, func(a, b string) int {
		return editdistance.Between(name, a) - editdistance.Between(name, b)
	})
}

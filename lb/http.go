package lb

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTP are the options of a listener with protocol http or https; zero with tcp.
type HTTP struct {
	Sticky         bool
	CookieName     string
	CookieLifetime time.Duration // whole seconds, 30–86400
	IdleTimeout    time.Duration // whole seconds, 30–300
	// Redirect redirects port 80 to the listener. Only with https.
	Redirect bool
	// Certificates are IDs, ascending and comma-separated for comparisons. Only with https.
	Certificates string
}

// The cloud's limits and defaults of HTTP listeners. Defaults are set explicitly, because an
// update does not change omitted fields.
const (
	minCookieLifetime, maxCookieLifetime = 30 * time.Second, 24 * time.Hour
	minIdleTimeout, maxIdleTimeout       = 30 * time.Second, 5 * time.Minute

	defaultCookie         = "HCLBSTICKY"
	defaultCookieLifetime = 300 * time.Second
	defaultIdleTimeout    = 50 * time.Second

	redirectPort = 80
)

// protocols refuses combinations of protocol settings that the cloud would refuse.
func (p *parser) protocols() {
	switch {
	case !slices.ContainsFunc(p.atPorts(), settings.takesDefaultCertificate):
	case p.set.managed() && p.svc.Annotations[annotationDomains] == "":
		p.refuse(ReasonInvalid, annotationDomains, "",
			"a managed certificate needs domains: set this, or "+annotationCertType+" to uploaded")
	case !p.set.managed() && p.svc.Annotations[annotationCertificates] == "":
		p.refuse(ReasonInvalid, annotationCertificates, "",
			"https needs a certificate: set this, "+annotationCertType+
				" to managed, or certificates of the port in "+AnnotationPorts)
	}
	p.redirects()
}

// redirects refuses redirects that need a port which is in use, perhaps by their own listener.
func (p *parser) redirects() {
	var redirecting []string
	taken, field := false, AnnotationPorts
	for i, s := range p.atPorts() {
		port := p.served[i].Number
		taken = taken || port == redirectPort
		if !s.redirects() {
			continue
		}
		redirecting = append(redirecting, strconv.Itoa(port))
		if p.set.redirects() {
			field = annotationRedirect
		}
	}
	switch {
	case len(redirecting) > 1:
		p.refuse(ReasonInvalid, field, "true",
			"the redirect takes port %d for each port with https, and these request it: %s: leave "+
				"it to one port, or to none", redirectPort, strings.Join(redirecting, ", "))
	case len(redirecting) == 1 && taken:
		p.refuse(ReasonInvalid, field, "true",
			"the redirect for port %s takes port %d, which the Service has too: leave out the "+
				"redirect, or the port", redirecting[0], redirectPort)
	}
}

func (s settings) redirects() bool {
	return s.listener.Protocol == ProtocolHTTPS && s.listener.HTTP.Redirect
}

// takesDefaultCertificate reports whether a port needs a certificate and has none in its options.
func (s settings) takesDefaultCertificate() bool {
	return s.listener.Protocol == ProtocolHTTPS && !s.ownCertificates
}

// listenerHTTP returns the HTTP options of a listener, without the certificates' IDs.
func (s settings) listenerHTTP() HTTP {
	http := s.listener.HTTP
	switch s.listener.Protocol {
	case ProtocolTCP:
		return HTTP{}
	case ProtocolHTTP:
		http.Redirect = false
	}
	return http
}

func (s Spec) withCertificates(ids []int64) Spec {
	return s.certified(ids, func(port int) bool { return s.PortCertificates[port] == nil })
}

// JoinCertificates returns IDs in the format of [HTTP].
func JoinCertificates(ids []int64) string {
	texts := make([]string, 0, len(ids))
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		texts = append(texts, strconv.FormatInt(id, 10))
	}
	return strings.Join(texts, ",")
}

// certified sets the certificates of the listeners of these ports that have https.
func (s Spec) certified(ids []int64, ports func(port int) bool) Spec {
	s.Listeners = slices.Clone(s.Listeners)
	for i := range s.Listeners {
		if l := &s.Listeners[i]; l.Protocol == ProtocolHTTPS && ports(l.Port) {
			l.HTTP.Certificates = JoinCertificates(ids)
		}
	}
	return s
}

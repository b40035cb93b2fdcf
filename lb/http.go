package lb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTP is what a listener with protocol http or https has beside ports; zero with tcp.
type HTTP struct {
	Sticky         bool
	CookieName     string
	CookieLifetime time.Duration // whole seconds, 30–86400
	IdleTimeout    time.Duration // whole seconds, 30–300
	// Redirect answers on port 80 with a redirect to the listener. Only with https.
	Redirect bool
	// Certificates are IDs, ascending and comma-separated, so that listeners can be compared. Only
	// with https.
	Certificates string
}

// The cloud's limits and defaults of HTTP listeners. The defaults are written out where nobody says
// otherwise, because an update leaves alone what it does not mention.
const (
	minCookieLifetime, maxCookieLifetime = 30 * time.Second, 24 * time.Hour
	minIdleTimeout, maxIdleTimeout       = 30 * time.Second, 5 * time.Minute

	defaultCookie         = "HCLBSTICKY"
	defaultCookieLifetime = 300 * time.Second
	defaultIdleTimeout    = 50 * time.Second

	redirectPort = 80
)

// protocols answers combinations of protocol settings that the cloud would refuse.
func (p *parser) protocols() {
	s := p.set
	if s.protocol != ProtocolHTTPS {
		return
	}
	switch {
	case s.managed && p.svc.Annotations[annotationDomains] == "":
		p.refuse(ReasonInvalid, annotationDomains, "", "a managed certificate needs domains: set this, or "+annotationCertType+" to uploaded")
	case !s.managed && p.svc.Annotations[annotationCertificates] == "":
		p.refuse(ReasonInvalid, annotationCertificates, "", "https needs a certificate: set this, or "+annotationCertType+" to managed")
	}
	if s.http.Redirect && len(p.served) > 1 {
		p.refuse(ReasonInvalid, annotationRedirect, "true",
			fmt.Sprintf("the redirect takes port %d for each port with https, and this Service has %d ports: leave one port, or set false", redirectPort, len(p.served)))
	}
}

// listenerHTTP is the HTTP part of every listener, but for the certificates, whose IDs are to be
// found out.
func (p *parser) listenerHTTP() HTTP {
	http := p.set.http
	switch p.set.protocol {
	case ProtocolTCP:
		return HTTP{}
	case ProtocolHTTP:
		http.Redirect = false
	}
	return http
}

// withCertificates puts certificates into all listeners that need some.
func (s Spec) withCertificates(ids []int64) Spec {
	texts := make([]string, 0, len(ids))
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		texts = append(texts, strconv.FormatInt(id, 10))
	}
	s.Listeners = slices.Clone(s.Listeners)
	for i := range s.Listeners {
		if s.Listeners[i].Protocol == ProtocolHTTPS {
			s.Listeners[i].HTTP.Certificates = strings.Join(texts, ",")
		}
	}
	return s
}

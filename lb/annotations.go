package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// HetznerPrefix is the prefix of the Hetzner cloud controller manager's annotations, which
	// keep their meaning.
	HetznerPrefix = "load-balancer.hetzner.cloud/"
	OwnPrefix     = "underlay.dev/"
)

const (
	AnnotationName         = HetznerPrefix + "name"
	AnnotationType         = HetznerPrefix + "type"
	AnnotationLocation     = HetznerPrefix + "location"
	AnnotationNetworkZone  = HetznerPrefix + "network-zone"
	AnnotationNodeSelector = HetznerPrefix + "node-selector"

	annotationAlgorithm      = HetznerPrefix + "algorithm-type"
	annotationAdopt          = OwnPrefix + "adopt"
	annotationElsewhere      = OwnPrefix + "source-ranges-enforced-elsewhere"
	annotationProtocol       = HetznerPrefix + "protocol"
	annotationRedirect       = HetznerPrefix + "http-redirect-http"
	annotationCertType       = HetznerPrefix + "certificate-type"
	annotationCertificates   = HetznerPrefix + "http-certificates"
	annotationDomains        = HetznerPrefix + "http-managed-certificate-domains"
	annotationPrivateIPv4    = HetznerPrefix + "private-ipv4"
	annotationPrivateRange   = HetznerPrefix + "private-subnet-ip-range"
	annotationCheckProtocol  = HetznerPrefix + "health-check-protocol"
	annotationPublicOff      = HetznerPrefix + "disable-public-network"
	annotationPrivateIP      = HetznerPrefix + "use-private-ip"
	annotationIPv6Off        = HetznerPrefix + "ipv6-disabled"
	annotationCheckInterval  = HetznerPrefix + "health-check-interval"
	annotationCheckTimeout   = HetznerPrefix + "health-check-timeout"
	annotationCheckRetries   = HetznerPrefix + "health-check-retries"
	annotationCheckPort      = HetznerPrefix + "health-check-port"
	annotationOwnHealthCheck = OwnPrefix + "health-check"
)

// Annotation is a row of the table of annotations. Their effects and defaults are described in
// docs/reference/annotations.md.
type Annotation struct {
	Name  string // with its prefix
	Type  string // text, choice, boolean, integer, duration, list, address, prefix or JSON
	Range string // empty: described in the documentation
	// Option is the same setting for a single port in [AnnotationPorts]: its JSON keys, joined by
	// dots. Empty: there is no such option.
	Option string

	// set stores a valid value; its error describes a valid value.
	set func(value string) error
}

func (a Annotation) atPort(option string) Annotation {
	a.Option = option
	return a
}

// Annotations returns all annotations, sorted by subject.
func Annotations() []Annotation { return new(settings).annotations() }

// annotations returns all annotations, which set these settings.
func (s *settings) annotations() []Annotation {
	l := &s.listener
	ignore := func(string) (string, error) { return "", nil }
	return []Annotation{
		text(AnnotationName, &s.Name, validName),
		text(AnnotationType, &s.Type, validIdentifier),
		text(AnnotationLocation, &s.Location, validIdentifier),
		text(AnnotationNetworkZone, &s.NetworkZone, validIdentifier),
		choice(annotationAlgorithm, &s.Algorithm, RoundRobin, LeastConnections),
		text(HetznerPrefix+"hostname", &s.Publish.Hostname, validHostname),
		text(AnnotationNodeSelector, &s.NodeSelector, func(string) error { return nil }),
		choice(AnnotationTargets, new(string), targetsNodes, targetsPods), // see WantsPods
		text(HetznerPrefix+"ipv4-rdns", &s.IPv4Name, validHostname),
		text(HetznerPrefix+"ipv6-rdns", &s.IPv6Name, validHostname),
		choice(OwnPrefix+"ip-mode", &s.proxyMode, modeVIP, modeProxy),
		boolean(annotationAdopt, &s.Takeover.Adopt),
		text(AnnotationShared, &s.Shared, validDNSLabel),
		boolean(annotationElsewhere, &s.elsewhere),

		boolean(annotationPrivateIP, &s.UsePrivateIP),
		boolean(HetznerPrefix+"disable-private-ingress", &s.privateOff),
		boolean(annotationPublicOff, &s.publicOff),
		boolean(annotationIPv6Off, &s.Takeover.NoIPv6),
		row(annotationPrivateIPv4, "address", "", &s.PrivateIP, privateAddress),
		row(annotationPrivateRange, "prefix", "", &s.PrivateRange, privateSubnet),
		text(AnnotationPrimaryIPv4, &s.PrimaryIPv4.Named, validPrimaryIP),
		text(AnnotationPrimaryIPv6, &s.PrimaryIPv6.Named, validPrimaryIP),

		row(AnnotationPorts, "JSON", "", new(string), ignore), // see portOptions
		choice(annotationProtocol, &l.Protocol,
			ProtocolTCP, ProtocolHTTP, ProtocolHTTPS).atPort("protocol"),
		boolean(HetznerPrefix+"uses-proxyprotocol", &l.ProxyProtocol).atPort("proxyProtocol"),
		boolean(HetznerPrefix+"http-sticky-sessions", &l.HTTP.Sticky).atPort("stickySessions"),
		text(HetznerPrefix+"http-cookie-name", &l.HTTP.CookieName, validCookie).atPort("cookieName"),
		duration(HetznerPrefix+"http-cookie-lifetime", &l.HTTP.CookieLifetime,
			minCookieLifetime, maxCookieLifetime).atPort("cookieLifetime"),
		duration(HetznerPrefix+"http-timeout-idle", &l.HTTP.IdleTimeout,
			minIdleTimeout, maxIdleTimeout).atPort("idleTimeout"),
		boolean(annotationRedirect, &l.HTTP.Redirect).atPort("redirectHTTP"),

		choice(annotationCertType, &s.certificateType, "uploaded", certificateManaged),
		row(annotationCertificates, "list", "", &s.Certificates,
			list(50, validName)).atPort(pathCertificates),
		text(HetznerPrefix+"http-managed-certificate-name", &s.managedCert.Name, validName),
		row(annotationDomains, "list", "", &s.managedCert.Domains, list(100, validDomain)),
		boolean(HetznerPrefix+"http-managed-certificate-acme-staging", &s.managedCert.Staging),

		choice(annotationOwnHealthCheck, &s.checkMode,
			CheckKubeProxy, CheckNodePort).atPort(pathCheckMode),
		choice(annotationCheckProtocol, &l.Check.Protocol,
			ProtocolTCP, ProtocolHTTP, ProtocolHTTPS).atPort("healthCheck.protocol"),
		integer(annotationCheckPort, &l.Check.Port, 1, 65535).atPort("healthCheck.port"),
		duration(annotationCheckInterval, &l.Check.Interval,
			minInterval, maxInterval).atPort("healthCheck.interval"),
		duration(annotationCheckTimeout, &l.Check.Timeout,
			minTimeout, maxTimeout).atPort("healthCheck.timeout"),
		integer(annotationCheckRetries, &l.Check.Retries,
			minRetries, maxRetries).atPort("healthCheck.retries"),
		text(HetznerPrefix+"health-check-http-path", &l.Check.Path,
			validPath).atPort("healthCheck.path"),
		text(HetznerPrefix+"health-check-http-domain", &l.Check.Domain,
			validCheckDomain).atPort("healthCheck.domain"),
		boolean(HetznerPrefix+"health-check-http-validate-certificate",
			&l.Check.TLS).atPort("healthCheck.tls"),
		row(HetznerPrefix+"http-status-codes", "list", "", &l.Check.StatusCodes,
			statusCodes).atPort("healthCheck.statusCodes"),
	}
}

// row returns an annotation that read parses. The error of read describes a valid value.
func row[T any](
	name, kind, accepts string, into *T, read func(string) (T, error),
) Annotation {
	return Annotation{Name: name, Type: kind, Range: accepts, set: func(value string) error {
		parsed, err := read(value)
		if err == nil {
			*into = parsed
		}
		return err
	}}
}

func text(name string, into *string, valid func(string) error) Annotation {
	read := func(value string) (string, error) { return value, valid(value) }
	return row(name, "text", "", into, read)
}

func choice[T ~string](name string, into *T, values ...T) Annotation {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	remedy := fmt.Sprintf("set %s, or remove it", strings.Join(texts, " or "))
	return row(name, "choice", strings.Join(texts, ", "), into, func(value string) (T, error) {
		return T(value), require(slices.Contains(texts, value), remedy)
	})
}

func boolean(name string, into *bool) Annotation {
	return row(name, "boolean", "true, false", into, func(value string) (bool, error) {
		on, err := strconv.ParseBool(value)
		return on, require(err == nil, "set true or false")
	})
}

func integer(name string, into *int, low, high int) Annotation {
	accepts := fmt.Sprintf("%d to %d", low, high)
	return row(name, "integer", accepts, into, func(value string) (int, error) {
		parsed, err := strconv.Atoi(value)
		valid := err == nil && parsed >= low && parsed <= high
		return parsed, require(valid, "set a whole number from "+accepts)
	})
}

// duration returns an annotation in seconds or in the format of time.ParseDuration.
func duration(name string, into *time.Duration, low, high time.Duration) Annotation {
	remedy := fmt.Sprintf("set whole seconds from %d to %d, as \"%[1]d\" or %[3]q",
		low/time.Second, high/time.Second, low.String())
	return row(name, "duration", "", into, func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if _, plain := strconv.Atoi(value); plain == nil {
			parsed, err = time.ParseDuration(value + "s")
		}
		return parsed, require(err == nil && wholeSeconds(parsed, low, high), remedy)
	})
}

// list parses a comma-separated list; spaces around commas are ignored.
func list(most int, valid func(string) error) func(string) ([]string, error) {
	return func(value string) ([]string, error) {
		items := strings.Split(value, ",")
		for i, item := range items {
			if items[i] = strings.TrimSpace(item); items[i] == "" {
				return nil, errors.New("set values between commas, none of them empty")
			}
			if err := valid(items[i]); err != nil {
				return nil, err
			}
		}
		if len(items) > most {
			return nil, fmt.Errorf("set at most %d values", most)
		}
		return items, nil
	}
}

func statusCodes(value string) (string, error) {
	codes, err := list(20, validStatusCode)(value)
	return strings.Join(codes, ","), err
}

// require returns an error with the remedy unless the value is valid.
func require(valid bool, remedy string) error {
	if valid {
		return nil
	}
	return errors.New(remedy)
}

func privateAddress(value string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(value)
	return addr, require(err == nil && addr.Is4() && addr.IsPrivate(),
		"set an IPv4 address of the network, such as 10.0.0.5")
}

func privateSubnet(value string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(value)
	return prefix, require(err == nil && prefix.Addr().Is4() && prefix == prefix.Masked(),
		"set the IPv4 range of a subnet of the network, such as 10.0.1.0/24")
}

func validName(v string) error {
	return require(len(v) <= 128 && strings.TrimSpace(v) == v,
		"set 1 to 128 characters without a space at either end")
}

// validIdentifier also accepts unknown locations, zones and types: the cloud may add some.
func validIdentifier(v string) error {
	return require(strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789-") == "",
		"set a name of lower-case letters, digits and '-'")
}

func validPath(v string) error {
	return require(
		strings.HasPrefix(v, "/") && len(v) <= 256 && !strings.ContainsAny(v, " \t\r\n"),
		"set a path that begins with / and has at most 256 characters and no space")
}

// validStatusCode accepts the same as the cloud: digits, ? for one character, * for several.
func validStatusCode(v string) error {
	return require(len(v) <= 3 && strings.Trim(v, "0123456789?*") == "",
		"set status codes between commas, ? and * stand for other characters: \"2??,301\"")
}

func validCheckDomain(v string) error {
	return require(len(v) <= 128 && !strings.ContainsAny(v, " %\\"),
		"set a host name of at most 128 characters")
}

// validCookie accepts the cookie names of RFC 6265.
func validCookie(v string) error {
	if strings.ContainsFunc(v, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	}) {
		return errors.New("set a cookie's name: letters, digits, '-' and '_'")
	}
	return require(len(v) <= 100, "set at most 100 characters")
}

func validDomain(v string) error {
	return require(
		validHostname(strings.TrimPrefix(v, "*.")) == nil && strings.Contains(v, "."),
		"set domain names between commas, such as \"example.com,*.example.com\"")
}

const labelPattern = `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`

var (
	dnsLabel = regexp.MustCompile(`^` + labelPattern + `$`)
	hostname = regexp.MustCompile(`^` + labelPattern + `(\.` + labelPattern + `)*$`)
)

// validHostname accepts the same host names as the API server in a Service's status.
func validHostname(v string) error {
	_, notAddress := netip.ParseAddr(v)
	return require(notAddress != nil && len(v) <= 253 && hostname.MatchString(v),
		"set a DNS name of lower-case letters, digits, '-' and '.', not an address")
}

func validDNSLabel(v string) error {
	return require(dnsLabel.MatchString(v),
		"set a name of at most 63 lower-case letters, digits and '-', which begins and ends with "+
			"a letter or a digit")
}

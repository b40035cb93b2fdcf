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

	// For a port only: whether it has certificates of its own, and its options.
	ownCertificates bool
	given           []Annotation
}

// row returns the annotation that read parses into a field of the settings. The error of read
// describes a valid value.
func row[T any](
	name, kind, accepts, builtin, effect string,
	at func(*settings) *T, read func(string) (T, error), idle idleRule,
) Annotation {
	set := func(s *settings, value string) error {
		parsed, err := read(value)
		if err == nil {
			*at(s) = parsed
		}
		return err
	}
	return Annotation{
		Name: name, Type: kind, Range: accepts, Default: builtin, Effect: effect, set: set, idle: idle,
	}
}

func text(
	name, accepts, builtin, effect string,
	at func(*settings) *string, valid func(string) error, idle idleRule,
) Annotation {
	read := func(value string) (string, error) { return value, valid(value) }
	return row(name, "text", accepts, builtin, effect, at, read, idle)
}

func choice[T ~string](
	name, builtin, effect string, at func(*settings) *T, idle idleRule, values ...T,
) Annotation {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	remedy := fmt.Sprintf("set %s, or remove it", strings.Join(texts, " or "))
	read := func(value string) (T, error) {
		return T(value), require(slices.Contains(texts, value), remedy)
	}
	return row(name, "choice", strings.Join(texts, ", "), builtin, effect, at, read, idle)
}

func boolean(name, effect string, at func(*settings) *bool, idle idleRule) Annotation {
	read := func(value string) (bool, error) {
		on, err := strconv.ParseBool(value)
		return on, require(err == nil, "set true or false")
	}
	return row(name, "boolean", "true, false", "false", effect, at, read, idle)
}

func integer(
	name, accepts, builtin, effect string, at func(*settings) *int, low, high int,
) Annotation {
	remedy := fmt.Sprintf("set a whole number from %d to %d", low, high)
	read := func(value string) (int, error) {
		parsed, err := strconv.Atoi(value)
		return parsed, require(err == nil && parsed >= low && parsed <= high, remedy)
	}
	return row(name, "integer", accepts, builtin, effect, at, read, nil)
}

// duration returns an annotation in seconds or in the format of time.ParseDuration.
func duration(
	name, accepts, builtin, effect string,
	at func(*settings) *time.Duration, low, high time.Duration, idle idleRule,
) Annotation {
	remedy := fmt.Sprintf("set whole seconds from %d to %d, as \"%[1]d\" or %[3]q",
		low/time.Second, high/time.Second, low.String())
	read := func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if _, plain := strconv.Atoi(value); plain == nil {
			parsed, err = time.ParseDuration(value + "s")
		}
		return parsed, require(err == nil && wholeSeconds(parsed, low, high), remedy)
	}
	return row(name, "duration", accepts, builtin, effect, at, read, idle)
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

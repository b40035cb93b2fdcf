package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the defaults, overridden by annotations: of the load balancer, and of one port.
type settings struct {
	// Spec has what annotations set directly; see [parser.spec] for the rest of it.
	Spec
	publicOff  bool
	privateOff bool   // no private address in the status
	proxyMode  string // empty: by protocol
	elsewhere  bool   // source ranges are enforced elsewhere
	local      bool   // externalTrafficPolicy is Local, and it matters

	certificateType string // certificateManaged: the certificate is managedCert
	managedCert     ManagedCertificate

	// listener is that of each port, without port numbers. Its check is what annotations set: an
	// empty protocol and port follow the traffic policy.
	listener  Listener
	checkMode CheckMode // empty: by default

	// Of one port only: it has certificates of its own; and the options that it was given.
	ownCertificates bool
	given           []PortOption
}

// row is the row of an annotation whose value read turns into a field of the settings, or says what
// a valid value is.
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

// choice is the row of an annotation that takes one of these values.
func choice[T ~string](
	name, builtin, effect string, at func(*settings) *T, idle idleRule, values ...T,
) Annotation {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	read := func(value string) (T, error) {
		if !slices.Contains(texts, value) {
			return "", fmt.Errorf("set %s, or remove it", strings.Join(texts, " or "))
		}
		return T(value), nil
	}
	return row(name, "choice", strings.Join(texts, ", "), builtin, effect, at, read, idle)
}

// boolean is the row of an annotation that is off where nothing sets it.
func boolean(name, effect string, at func(*settings) *bool, idle idleRule) Annotation {
	read := func(value string) (bool, error) {
		on, err := strconv.ParseBool(value)
		if err != nil {
			err = errors.New("set true or false")
		}
		return on, err
	}
	return row(name, "boolean", "true, false", "false", effect, at, read, idle)
}

func integer(
	name, accepts, builtin, effect string, at func(*settings) *int, low, high int,
) Annotation {
	read := func(value string) (int, error) {
		parsed, err := strconv.Atoi(value)
		if err != nil || parsed < low || parsed > high {
			err = fmt.Errorf("set a whole number from %d to %d", low, high)
		}
		return parsed, err
	}
	return row(name, "integer", accepts, builtin, effect, at, read, nil)
}

// duration reads seconds as a plain number, and Go's notation.
func duration(
	name, accepts, builtin, effect string,
	at func(*settings) *time.Duration, low, high time.Duration, idle idleRule,
) Annotation {
	read := func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if _, plain := strconv.Atoi(value); plain == nil {
			parsed, err = time.ParseDuration(value + "s")
		}
		if err != nil || !wholeSeconds(parsed, low, high) {
			err = fmt.Errorf("set whole seconds from %d to %d, as \"%[1]d\" or %[3]q",
				low/time.Second, high/time.Second, low.String())
		}
		return parsed, err
	}
	return row(name, "duration", accepts, builtin, effect, at, read, idle)
}

// list reads texts between commas; spaces around them do not matter.
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

// statusCodes reads a list of status codes, which a health check has as one text.
func statusCodes(value string) (string, error) {
	codes, err := list(20, validStatusCode)(value)
	return strings.Join(codes, ","), err
}

// privateAddress reads an address that a private network can have.
func privateAddress(value string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(value)
	if err != nil || !addr.Is4() || !addr.IsPrivate() {
		err = errors.New("set an IPv4 address of the network, such as 10.0.0.5")
	}
	return addr, err
}

// privateSubnet reads the range of a private network's subnet.
func privateSubnet(value string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() {
		err = errors.New("set the IPv4 range of a subnet of the network, such as 10.0.1.0/24")
	}
	return prefix, err
}

func validName(v string) error {
	if len(v) > 128 || strings.TrimSpace(v) != v {
		return errors.New("set 1 to 128 characters without a space at either end")
	}
	return nil
}

// validIdentifier accepts names of locations, zones and types that do not exist yet: the cloud adds
// some.
func validIdentifier(v string) error {
	for _, c := range v {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return errors.New("set a name of lower-case letters, digits and '-'")
		}
	}
	return nil
}

func validPath(v string) error {
	if !strings.HasPrefix(v, "/") || len(v) > 256 || strings.ContainsAny(v, " \t\r\n") {
		return errors.New("set a path that begins with / and has at most 256 characters and no space")
	}
	return nil
}

// validStatusCode accepts what the cloud does: digits, ? for one character, * for several.
func validStatusCode(v string) error {
	if len(v) > 3 || strings.Trim(v, "0123456789?*") != "" {
		return errors.New("set status codes between commas, ? and * stand for other characters: \"2??,301\"")
	}
	return nil
}

// validCheckDomain accepts what may be a Host header.
func validCheckDomain(v string) error {
	if len(v) > 128 || strings.ContainsAny(v, " %\\") {
		return errors.New("set a host name of at most 128 characters")
	}
	return nil
}

// validCookie follows RFC 6265 in what a cookie's name is made of.
func validCookie(v string) error {
	for _, c := range v {
		if c <= ' ' || c > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) {
			return errors.New("set a cookie's name: letters, digits, '-' and '_'")
		}
	}
	if len(v) > 100 {
		return errors.New("set at most 100 characters")
	}
	return nil
}

// validDomain accepts the names that certificates are issued for.
func validDomain(v string) error {
	if validHostname(strings.TrimPrefix(v, "*.")) != nil || !strings.Contains(v, ".") {
		return errors.New("set domain names between commas, such as \"example.com,*.example.com\"")
	}
	return nil
}

// validHostname follows what the API server accepts as a host name in a Service's status.
func validHostname(v string) error {
	err := errors.New("set a DNS name of lower-case letters, digits, '-' and '.', not an address")
	if _, isAddress := netip.ParseAddr(v); isAddress == nil || len(v) > 253 {
		return err
	}
	for label := range strings.SplitSeq(v, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || validIdentifier(label) != nil {
			return err
		}
	}
	return nil
}

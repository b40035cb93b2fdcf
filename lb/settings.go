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

// setter puts a valid value into the settings, or says what a valid value is.
type setter func(s *settings, value string) error

// settings are the defaults, overridden by annotations: of the load balancer, and of one port.
type settings struct {
	// Spec has what annotations set directly; see [parser.spec] for the rest of it.
	Spec
	publicOff  bool
	privateOff bool   // no private address in the status
	proxyMode  string // empty: by protocol
	elsewhere  bool   // source ranges are enforced elsewhere
	local      bool   // externalTrafficPolicy is Local, and it matters

	managed     bool // the certificate is managedCert
	managedCert ManagedCertificate

	// listener is that of each port, without port numbers. Its check is what annotations set: an
	// empty protocol and port follow the traffic policy.
	listener     Listener
	checkMode    CheckMode
	checkModeSet bool

	// Of one port only: it has certificates of its own; and the options that it was given.
	ownCertificates bool
	given           []PortOption
}

func text(at func(*settings) *string, valid func(string) error) setter {
	return func(s *settings, value string) error {
		if err := valid(value); err != nil {
			return err
		}
		*at(s) = value
		return nil
	}
}

// choice is the row of an annotation that takes one of these values.
func choice(
	name, builtin, effect string, set func(*settings, string), idle func(settings) string, values ...string,
) Annotation {
	valid := func(s *settings, value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("set %s, or remove it", strings.Join(values, " or "))
		}
		set(s, value)
		return nil
	}
	return Annotation{
		Name: name, Type: "choice", Range: strings.Join(values, ", "), Default: builtin, Effect: effect,
		set: valid, idle: idle,
	}
}

// boolean is the row of an annotation that is off where nothing sets it.
func boolean(name, effect string, at func(*settings) *bool, idle func(settings) string) Annotation {
	valid := func(s *settings, value string) error {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("set true or false")
		}
		*at(s) = parsed
		return nil
	}
	return Annotation{
		Name: name, Type: "boolean", Range: "true, false", Default: "false", Effect: effect,
		set: valid, idle: idle,
	}
}

func integer(at func(*settings) *int, low, high int) setter {
	return func(s *settings, value string) error {
		parsed, err := strconv.Atoi(value)
		if err != nil || parsed < low || parsed > high {
			return fmt.Errorf("set a whole number from %d to %d", low, high)
		}
		*at(s) = parsed
		return nil
	}
}

// duration reads seconds as a plain number, and Go's notation.
func duration(at func(*settings) *time.Duration, low, high time.Duration) setter {
	return func(s *settings, value string) error {
		parsed, err := time.ParseDuration(value)
		if seconds, plain := strconv.Atoi(value); plain == nil && seconds >= 0 && seconds <= int(high/time.Second) {
			parsed, err = time.Duration(seconds)*time.Second, nil
		}
		if err != nil || !wholeSeconds(parsed, low, high) {
			return fmt.Errorf("set whole seconds from %d to %d, as %q or %q",
				low/time.Second, high/time.Second, strconv.Itoa(int(low/time.Second)), low.String())
		}
		*at(s) = parsed
		return nil
	}
}

// list reads texts between commas; spaces around them do not matter.
func list(set func(*settings, []string), most int, valid func(string) error) setter {
	return func(s *settings, value string) error {
		var items []string
		for item := range strings.SplitSeq(value, ",") {
			item = strings.TrimSpace(item)
			if item == "" {
				return errors.New("set values between commas, none of them empty")
			}
			if err := valid(item); err != nil {
				return err
			}
			items = append(items, item)
		}
		if len(items) > most {
			return fmt.Errorf("set at most %d values", most)
		}
		set(s, items)
		return nil
	}
}

// privateAddress reads an address that a private network can have.
func privateAddress(s *settings, value string) error {
	addr, err := netip.ParseAddr(value)
	if err != nil || !addr.Is4() || !addr.IsPrivate() {
		return errors.New("set an IPv4 address of the network, such as 10.0.0.5")
	}
	s.PrivateIP = addr
	return nil
}

// privateSubnet reads the range of a private network's subnet.
func privateSubnet(s *settings, value string) error {
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() {
		return errors.New("set the IPv4 range of a subnet of the network, such as 10.0.1.0/24")
	}
	s.PrivateRange = prefix
	return nil
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

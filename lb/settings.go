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

// settings are the defaults, overridden by what a Service's annotations say.
type settings struct {
	name         string
	kind         string // the load balancer's type
	location     string
	zone         string
	algorithm    Algorithm
	usePrivateIP bool
	privateOff   bool // no private address in the status
	publicOff    bool
	proxy        bool
	hostname     string
	ipv6Off      bool
	nodeSelector string

	checkMode     CheckMode
	checkModeSet  bool
	checkProtocol string // empty: by traffic policy
	checkPort     int    // 0: by traffic policy
	checkPath     string
	interval      time.Duration
	timeout       time.Duration
	retries       int
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

func choice(set func(*settings, string), values ...string) setter {
	return func(s *settings, value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("set %s, or remove the annotation", strings.Join(values, " or "))
		}
		set(s, value)
		return nil
	}
}

func boolean(at func(*settings) *bool) setter {
	return func(s *settings, value string) error {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("set true or false")
		}
		*at(s) = parsed
		return nil
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

func validName(v string) error {
	if len(v) > 128 || strings.TrimSpace(v) != v {
		return errors.New("set 1 to 128 characters without a space at either end")
	}
	return nil
}

// validIdentifier accepts names of locations, zones and types that do not exist yet: the cloud adds some.
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

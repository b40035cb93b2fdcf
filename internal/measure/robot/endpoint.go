package robot

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/underlay-ccm/underlay/internal/robot"
)

// checked is an endpoint without a slash at its end. The user and the password go to no other than
// an encrypted one, or one on this machine. The error shows no endpoint that may hold a password.
func checked(endpoint string) (string, error) {
	const example = "such as " + robot.DefaultEndpoint
	if strings.Contains(endpoint, "@") {
		return "", errors.New("the endpoint of Robot has a user in it: write it without, " + example +
			", and set ROBOT_USER and ROBOT_PASSWORD")
	}
	base, err := url.Parse(endpoint)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "" {
		return "", fmt.Errorf("endpoint %q of Robot is not a URL %s", endpoint, example)
	}
	if base.Scheme == "http" && !onLoopback(base.Hostname()) {
		return "", fmt.Errorf("endpoint %q of Robot is asked without encryption, and the password would be "+
			"read on the way: write https, or an address of this machine", endpoint)
	}
	return strings.TrimSuffix(endpoint, "/"), nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

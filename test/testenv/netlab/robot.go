//go:build linux

package netlab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// The credentials of the manager at Robot.
const (
	robotUser     = "robot-user"
	robotPassword = "the-robot-password-that-must-never-be-shown"
)

// firstDedicated is the offset of the numbers of dedicated servers at Robot.
const firstDedicated = 1000

// failoverTime is how long Robot takes to reroute a failover address, which is 40 to 60 s at the
// real service.
const failoverTime = 3 * time.Second

// robotAccount is the simulated account of the dedicated servers.
type robotAccount struct {
	*robotsim.Simulator
	server *http.Server
	// section is the account's section of the configuration file.
	section string
}

// newRobotAccount creates an account with a vSwitch that is coupled with the cloud's network. It
// doesn't listen yet.
func (f *Lab) newRobotAccount() (*robotAccount, error) {
	profile, err := measured.Profile()
	if err != nil {
		return nil, err
	}
	account := robotsim.New(robotsim.Options{
		User: robotUser, Password: robotPassword, FailoverTime: failoverTime,
		OnRequest: func(r robotsim.Request) {
			if r.Method != http.MethodGet {
				f.followFailovers(context.Background())
			}
		},
		CloudSubnets: func() []robotsim.CloudSubnet { return robotsim.Coupled(f.Cloud)() },
	}.With(profile.Robot))
	if _, err := account.CreateVSwitch(robotsim.VSwitchSeed{
		ID: cluster.VSwitchID, Name: vSwitch,
	}); err != nil {
		return nil, err
	}
	return &robotAccount{Simulator: account}, nil
}

// listen starts the account's server for the manager, with credentials in files of a folder.
func (r *robotAccount) listen(ctx context.Context, dir string) error {
	user, password := filepath.Join(dir, "robot-user"), filepath.Join(dir, "robot-password")
	for path, content := range map[string]string{user: robotUser, password: robotPassword} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the simulated Robot: %w", err)
	}
	r.section = fmt.Sprintf("robot: {endpoint: 'http://%s', userFile: '%s', passwordFile: '%s'}\n", listener.Addr(), user, password)
	r.server = &http.Server{Handler: r.Simulator, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
	return nil
}

// OrderFailover creates a failover address, or prefix, that is routed to a dedicated server.
func (f *Lab) OrderFailover(ctx context.Context, net netip.Prefix, m *Machine) error {
	if err := f.robot.CreateFailover(robotsim.FailoverSeed{
		Net: net, Server: m.RobotNumber,
	}); err != nil {
		return err
	}
	f.followFailovers(ctx)
	return f.internet.failed()
}

// FailoversAt returns the main addresses of the servers that the internet routes failover addresses
// to, in the order of their creation.
func (f *Lab) FailoversAt() (active []netip.Addr) {
	f.internet.mu.Lock()
	defer f.internet.mu.Unlock()
	for _, failover := range f.internet.failovers {
		active = append(active, failover.active)
	}
	return active
}

// RobotRequests are the requests that Robot received.
func (f *Lab) RobotRequests() []robotsim.Request { return f.robot.Requests() }

func (f *Lab) followFailovers(ctx context.Context) {
	f.internet.followFailovers(ctx, func() (now []failover) {
		for _, one := range f.robot.Failovers() {
			now = append(now, failover{one.Net, one.Active})
		}
		return now
	})
}

func (r *robotAccount) close() {
	if r.server != nil {
		_ = r.server.Close()
	}
}

// rent adds a dedicated server to the account, and to the vSwitch as a user does: by the web
// service.
func (r *robotAccount) rent(ctx context.Context, seed robotsim.ServerSeed) error {
	number, err := r.CreateServer(seed)
	if err != nil {
		return err
	}
	members := url.Values{"server[]": {strconv.FormatInt(number, 10)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		fmt.Sprintf("http://robot/vswitch/%d/server", cluster.VSwitchID), strings.NewReader(members.Encode()))
	if err != nil {
		return err
	}
	request.SetBasicAuth(robotUser, robotPassword)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := r.Transport().RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("adding server %d to the vSwitch: Robot answers %s", number, response.Status)
	}
	return nil
}

//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// VSwitchInterface is the name of a dedicated server's interface in the vSwitch of a CloudLab.
const VSwitchInterface = "vlan4000"

// DedicatedServer is one that is rented at Robot and is in the vSwitch. Its interfaces are "eth0",
// with its public addresses, and VSwitchInterface, without an address: which one it has there is for
// whoever configures it to say. Both take packets of 1500 bytes.
type DedicatedServer struct {
	Name      string
	Number    int64 // at Robot
	Namespace *netns.Namespace
	Public    Public

	dir     string
	scripts []*process.Process
}

// startVSwitch makes the vSwitch at Robot.
func (l *CloudLab) startVSwitch() error {
	_, err := l.Robot.CreateVSwitch(robotsim.VSwitchSeed{ID: cluster.VSwitchID, Name: vSwitch})
	return err
}

// RentDedicated makes a dedicated server and puts it into the vSwitch.
func (l *CloudLab) RentDedicated(ctx context.Context, name string) (*DedicatedServer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number := len(l.dedicated) + 1
	if number > 200 {
		return nil, fmt.Errorf("dedicated server %s: there are 200 already", name)
	}
	d := &DedicatedServer{
		Name: name, Number: int64(firstDedicated + number), dir: l.options.Dir,
		Public: Public{
			IPv4:       netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + number)}),
			IPv6Prefix: prefix(fmt.Sprintf("2001:db8:d:%x::/64", number)),
		},
	}
	d.Public.IPv6 = d.Public.IPv6Prefix.Addr().Next()
	var err error
	if d.Namespace, err = openHost(); err != nil {
		return nil, fmt.Errorf("dedicated server %s: %w", name, err)
	}
	l.dedicated = append(l.dedicated, d)
	segment, err := l.segment(ctx, cluster.VSwitchID)
	if err != nil {
		return nil, fmt.Errorf("dedicated server %s: %w", name, err)
	}
	port := fmt.Sprintf("d%d", number)
	_, rented := l.Robot.CreateServer(robotsim.ServerSeed{Number: d.Number, Name: name, IPv4: d.Public.IPv4, IPv6: d.Public.IPv6Prefix})
	err = errors.Join(
		rented,
		l.Robot.SetMember(cluster.VSwitchID, d.Number, "ready"),
		l.internet.plug(ctx, port, d.Namespace, eth0, d.Public),
		plugInto(ctx, segment, port, d.Namespace, VSwitchInterface),
	)
	if err != nil {
		return nil, fmt.Errorf("dedicated server %s: %w", name, err)
	}
	return d, nil
}

// RunScript runs a script, which begins with "#!", as a person does who has copied it to the server,
// in file systems as the user data of a cloud server. What it prints is in the process's Log. It ends
// with the lab, or when it is killed.
func (d *DedicatedServer) RunScript(script string) (*process.Process, error) {
	if !isScript(script) {
		return nil, fmt.Errorf(`dedicated server %s: the script doesn't begin with "#!"`, d.Name)
	}
	p, err := runScript(d.Namespace, d.dir, fmt.Sprintf("dedicated-%s-script-%d", d.Name, len(d.scripts)+1), script, scriptPath)
	if err != nil {
		return nil, fmt.Errorf("dedicated server %s: %w", d.Name, err)
	}
	d.scripts = append(d.scripts, p)
	return p, nil
}

func (d *DedicatedServer) halt() {
	for _, p := range d.scripts {
		p.Kill()
	}
	d.Namespace.Close()
}

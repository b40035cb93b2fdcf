package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
	measurerobot "github.com/underlay-ccm/underlay/internal/measure/robot"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// dedicatedFlags name a dedicated server of the user's.
type dedicatedFlags struct {
	address, key, device string
	vSwitch              int64
	robotEndpoint        string
}

func (d *dedicatedFlags) add(f *pflag.FlagSet) {
	f.StringVar(&d.address, "dedicated", "", "public address of a dedicated server of yours, or ADDRESS:PORT if the program there has another port than its own; the server is not thrown away: what is changed there is changed back")
	f.StringVar(&d.key, "dedicated-key", "", "key file of the program that runs there, see hcloud-sim measure program")
	f.StringVar(&d.device, "dedicated-interface", "", "its interface in the vSwitch, such as enp0s31f6.4000")
	f.Int64Var(&d.vSwitch, "vswitch", 0, "ID of a vSwitch that it is in, and that is coupled with no network")
}

// addRobot is for every command that asks Robot.
func (d *dedicatedFlags) addRobot(f *pflag.FlagSet) {
	f.StringVar(&d.robotEndpoint, "robot-endpoint", "", "address of the Robot web service, which is asked if ROBOT_USER and ROBOT_PASSWORD are set; empty: the real one")
}

// check finds flags that don't go together.
func (d *dedicatedFlags) check(apiOnly bool) error {
	var errs []error
	if d.address == "" {
		if d.key != "" || d.device != "" {
			errs = append(errs, errors.New("--dedicated-key and --dedicated-interface are given without --dedicated: name the server's address too"))
		}
	} else if _, err := d.at(); err != nil {
		errs = append(errs, err)
	}
	if (d.key != "") != (d.device != "") {
		errs = append(errs, errors.New("--dedicated-key and --dedicated-interface go together: give both"))
	}
	if d.key != "" && apiOnly {
		errs = append(errs, errors.New("--dedicated-key and --api-only exclude each other: with the program packets are sent"))
	}
	return errors.Join(errs...)
}

// at is where the program on the server is asked.
func (d *dedicatedFlags) at() (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(d.address); err == nil {
		return netip.AddrPortFrom(address, inside.Port), nil
	}
	at, err := netip.ParseAddrPort(d.address)
	if err != nil {
		return at, fmt.Errorf("--dedicated %q is no address: write one such as 203.0.113.7, or with the program's port 203.0.113.7:%d or [2001:db8::7]:%d", d.address, inside.Port, inside.Port)
	}
	return at, nil
}

// wanted says what there is to find out more with.
func (d *dedicatedFlags) wanted(w *measure.Wanted, withRobot bool) {
	w.Dedicated, w.DedicatedProgram, w.VSwitch, w.Robot = d.address != "", d.key != "", d.vSwitch != 0, withRobot
}

// server is the dedicated server, looked at; nil: none is named.
func (d *dedicatedFlags) server(ctx context.Context, web *measurerobot.Client) (*experiment.Dedicated, error) {
	if d.address == "" && d.vSwitch == 0 {
		return nil, nil
	}
	out := &experiment.Dedicated{Interface: d.device, VSwitch: d.vSwitch}
	if d.address == "" {
		return out, nil
	}
	at, err := d.at()
	if err != nil {
		return nil, err
	}
	out.Address = at.Addr()
	if d.key != "" {
		text, err := os.ReadFile(d.key)
		if err != nil {
			return nil, fmt.Errorf("--dedicated-key: %w", err)
		}
		keys, err := inside.ParseClientFile(text)
		if err != nil {
			return nil, fmt.Errorf("--dedicated-key %s: %w", d.key, err)
		}
		out.Program = inside.New(keys, at, nil)
	}
	return out, out.Look(ctx, web)
}

// robot is the client of the web service; nil: there are no credentials.
func (d *dedicatedFlags) robot(t terminal) (*measurerobot.Client, error) {
	user, password := t.getenv("ROBOT_USER"), t.getenv("ROBOT_PASSWORD")
	files := robot.CredentialFiles{
		User: t.getenv("ROBOT_USER_FILE"), Password: t.getenv("ROBOT_PASSWORD_FILE"),
	}
	read := files.Read
	if user != "" || password != "" {
		read = func() (robot.Credentials, error) { return robot.NewCredentials(user, password) }
	} else if files == (robot.CredentialFiles{}) {
		return nil, nil
	}
	credentials, err := read()
	if err != nil {
		return nil, fmt.Errorf("ROBOT_USER and ROBOT_PASSWORD, or ROBOT_USER_FILE and "+
			"ROBOT_PASSWORD_FILE: %w", err)
	}
	run := fmt.Sprintf("%s-%06x", time.Now().UTC().Format("20060102-1504"), rand.N(1<<24))
	return measurerobot.New(measurerobot.Options{
		Endpoint: d.robotEndpoint, Credentials: credentials, Run: run, Version: release(),
	})
}

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/internal/measure/robot"
	webservice "github.com/underlay-ccm/underlay/internal/robot"
)

// Dedicated is a dedicated server of the user's. It is not thrown away, so whatever is done in it is
// undone.
type Dedicated struct {
	// Address is a public one of the server.
	Address netip.Addr
	// Program is the program that the user has started in it; nil: none.
	Program Program
	// Interface is the name of its interface in the vSwitch, and VSwitch the vSwitch's ID; empty and
	// 0: none is named.
	Interface string
	VSwitch   int64
	// Hosts is how many addresses the vSwitch's gateway is tried with, beside the server's own, at
	// most 510; 0: 500.
	Hosts int
	// Addresses are its public addresses, as far as they are known; see [Dedicated.Look].
	Addresses []netip.Addr
}

// Look asks who the server is, before anything is made: its program, if one is named, for its
// interfaces, and Robot, if there are credentials, for its addresses and the vSwitch. It notes its
// public addresses. The error is for the user, with the flag that is wrong.
func (d *Dedicated) Look(ctx context.Context, r *robot.Client) error {
	d.Addresses = nil
	d.know(d.Address)
	if d.Program != nil {
		if err := d.askProgram(ctx); err != nil {
			return err
		}
	}
	if r == nil {
		return nil
	}
	return d.askRobot(ctx, r)
}

func (d *Dedicated) askProgram(ctx context.Context) error {
	if err := d.Program.Ready(ctx); err != nil {
		return fmt.Errorf("the program on the dedicated server doesn't answer: %w; start it there "+
			"(hcloud-sim measure program --help), and let a firewall pass TCP port %d", err, inside.Port)
	}
	all, err := d.Program.Interfaces(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, is := range all {
		names = append(names, is.Name)
		for _, a := range is.Addresses {
			d.know(a.Addr())
		}
	}
	if d.Interface != "" && !slices.Contains(names, d.Interface) {
		return fmt.Errorf("--dedicated-interface %q: the dedicated server has %s", d.Interface, strings.Join(names, ", "))
	}
	return nil
}

func (d *Dedicated) askRobot(ctx context.Context, r *robot.Client) error {
	all, err := r.Servers(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s robot.Server) bool { return s.Has(d.Address) })
	if i < 0 {
		return errors.New("--dedicated: none of the Robot account's servers has this address")
	}
	for _, a := range all[i].Addresses {
		d.know(a)
	}
	if all[i].Net.IsValid() {
		d.know(all[i].Net.Addr().Next().Next()) // the second address, which servers have by default
	}
	if d.VSwitch == 0 {
		return nil
	}
	v, err := r.VSwitch(ctx, d.VSwitch)
	switch {
	case webservice.IsCode(err, webservice.CodeNotFound):
		return fmt.Errorf("--vswitch %d: the Robot account has none with this ID", d.VSwitch)
	case err != nil:
		return err
	case len(v.Networks) > 0:
		return fmt.Errorf("--vswitch %d: it is coupled with network %d; name one that is coupled with none",
			d.VSwitch, v.Networks[0].ID)
	case v.Status(all[i].Number) != robot.Ready:
		return fmt.Errorf("--vswitch %d: the dedicated server is not in it, or not ready there", d.VSwitch)
	}
	return nil
}

// stopTime is how long it may take to end the program.
const stopTime = 20 * time.Second

// Stop ends the program, if there is one. What it changed in the server is changed back.
func (d *Dedicated) Stop(ctx context.Context) error {
	if d.Program == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := d.Program.Stop(ctx); err != nil {
		return fmt.Errorf("ending the program on the dedicated server: %w; "+
			"end it there by Ctrl-C, which changes back what it changed", err)
	}
	return nil
}

// know notes an address, if it is public.
func (d *Dedicated) know(a netip.Addr) {
	a = a.Unmap()
	if a.IsGlobalUnicast() && !a.IsPrivate() && !slices.Contains(d.Addresses, a) {
		d.Addresses = append(d.Addresses, a)
	}
}

// public is the server's first public address of a family.
func (d *Dedicated) public(is func(netip.Addr) bool) (netip.Addr, bool) {
	i := slices.IndexFunc(d.Addresses, is)
	if i < 0 {
		return netip.Addr{}, false
	}
	return d.Addresses[i], true
}

func errNoDedicated() error {
	return errors.New("no dedicated server is named: name one by --dedicated")
}

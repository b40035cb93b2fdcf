//go:build linux

package main

import "github.com/underlay-ccm/underlay/routes/kernel"

// machine is the local network, which must be closed, and the parts.
type machine struct {
	network *kernel.Kernel
	parts
}

// open opens the machine; it changes nothing.
func (o *options) open() (machine, error) {
	parts, err := o.parts()
	if err != nil {
		return machine{}, err
	}
	network, err := kernel.Open()
	if err != nil {
		return machine{}, err
	}
	return machine{network: network, parts: parts}, nil
}

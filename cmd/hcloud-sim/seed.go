package main

import (
	"fmt"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"sigs.k8s.io/yaml"
)

// seedFile lists the initial resources. Servers refer to their network by name.
type seedFile struct {
	Networks    []hcloudsim.NetworkSeed   `json:"networks"`
	Servers     []serverSeed              `json:"servers"`
	PrimaryIPs  []hcloudsim.PrimaryIPSeed `json:"primary_ips"`
	FloatingIPs []floatingIPSeed          `json:"floating_ips"`
	Robot       robotSeed                 `json:"robot"`
}

type floatingIPSeed struct {
	hcloudsim.FloatingIPSeed
	ServerName string `json:"server"`
}

type serverSeed struct {
	hcloudsim.ServerSeed
	NetworkName string `json:"network"`
}

// parseSeed rejects unknown fields: a typo could otherwise create a server without a network.
func parseSeed(content []byte) (seedFile, error) {
	var f seedFile
	err := yaml.UnmarshalStrict(content, &f)
	return f, err
}

func (f seedFile) plant(sim *hcloudsim.Simulator) error {
	networks, servers := map[string]int64{}, map[string]int64{}
	for _, seed := range f.Networks {
		n, err := sim.CreateNetwork(seed)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		networks[n.Name] = n.ID
	}
	for _, seed := range f.Servers {
		if seed.NetworkName != "" {
			id, known := networks[seed.NetworkName]
			if !known {
				return fmt.Errorf("seed: server %q: network %q is not in the file", seed.Name, seed.NetworkName)
			}
			seed.Network = id
		}
		made, err := sim.CreateServer(seed.ServerSeed)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		servers[made.Name] = made.ID
	}
	for _, seed := range f.FloatingIPs {
		if seed.ServerName != "" {
			id, known := servers[seed.ServerName]
			if !known {
				return fmt.Errorf("seed: floating IP %q: server %q is not in the file",
					seed.Name, seed.ServerName)
			}
			seed.Server = id
		}
		if _, err := sim.CreateFloatingIP(seed.FloatingIPSeed); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	for _, seed := range f.PrimaryIPs {
		if _, err := sim.CreatePrimaryIP(seed); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return nil
}

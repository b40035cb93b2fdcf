package main

import (
	"fmt"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"sigs.k8s.io/yaml"
)

// seedFile is what exists from the start. Servers name their network.
type seedFile struct {
	Networks   []hcloudsim.NetworkSeed   `json:"networks"`
	Servers    []serverSeed              `json:"servers"`
	PrimaryIPs []hcloudsim.PrimaryIPSeed `json:"primary_ips"`
	Robot      robotSeed                 `json:"robot"`
}

type serverSeed struct {
	hcloudsim.ServerSeed
	NetworkName string `json:"network"`
}

// parseSeed refuses fields that don't exist: a typo would otherwise be a
// server without a network.
func parseSeed(content []byte) (seedFile, error) {
	var f seedFile
	err := yaml.UnmarshalStrict(content, &f)
	return f, err
}

func (f seedFile) plant(sim *hcloudsim.Simulator) error {
	networks := map[string]int64{}
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
		if _, err := sim.CreateServer(seed.ServerSeed); err != nil {
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

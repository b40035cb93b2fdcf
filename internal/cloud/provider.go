package cloud

import (
	cloudprovider "k8s.io/cloud-provider"
)

// Provider implements cloudprovider.Interface with instances only, since routes and load
// balancers have their own controllers.
type Provider struct {
	Name string // the scheme of provider IDs
	V2   cloudprovider.InstancesV2
}

var _ cloudprovider.Interface = Provider{}

// Initialize does nothing.
func (p Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// InstancesV2 returns V2.
func (p Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.V2, true }

// ProviderName returns the scheme of provider IDs.
func (p Provider) ProviderName() string { return p.Name }

// HasClusterID returns true, since ownership doesn't depend on tags of instances.
func (p Provider) HasClusterID() bool { return true }

// Instances is not supported; InstancesV2 replaces it.
func (p Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones is not supported; InstancesV2 replaces it.
func (p Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// LoadBalancer disables upstream's service controller.
func (p Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Routes disables upstream's route controller.
func (p Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }

// Clusters is not supported.
func (p Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

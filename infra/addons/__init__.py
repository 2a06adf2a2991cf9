"""Add-ons: one file with one `AddOn` each, a registry, and the component that installs them."""

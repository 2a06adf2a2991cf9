"""What maintains this repository; nothing that is deployed imports it."""

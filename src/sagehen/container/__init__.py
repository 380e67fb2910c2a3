"""What the programs in containers share: environments of requirements.txt, reading variables."""
